"""The codec port: how a user's value becomes JSON text and comes back as the same value.

Two protocols. A `Codec` turns values into JSON and back, guided by an annotation. A `Transform`
turns that text into other bytes and back (smaller, or unreadable without a key) and knows nothing
of values. A codec and any number of transforms make a chain::

    value ── Codec.encode ──▶ JSON text ── Transform.forward ──▶ bytes ── envelope ──▶ JSON text
    value ◀── Codec.decode ── JSON text ◀── Transform.backward ── bytes ◀── envelope ── JSON text

The result is JSON text at every stage, so it can be a member of an event's data, and code that reads,
lists or deletes events needs neither a type nor a key.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Codec(Protocol):
    """Values to JSON text and back, exactly or not at all.

    For every method:

    - `type` is an annotation as `typing.get_type_hints` gives it. ``Any`` (the default) stands for
      a value without an annotation.
    - `where` names the value in errors, in words the user knows: ``"argument 'order'"``.
    - A codec holds no state that a call could change, and may be used by many threads at once.
    - It is data only: no class, module or function is ever looked up by a name found in the text.
      The annotation alone says what may be built.
    """

    def encode(self, value: object, type: Any = Any, *, where: str = "value") -> msgspec.Raw:
        """The value as JSON text.

        - The text is one valid JSON value in UTF-8 and can be embedded in other JSON as it is.
        - It is never mistaken for an envelope of outlast's own, whatever the value holds.
        - `decode` of this text with the same `type` gives back an equal value of the same types,
          at every depth, with keys in the same order. If that cannot be, `NotSerializable` is
          raised and names the place; nothing is converted in silence.
        - Over the codec's limits `PayloadTooLarge` or `PayloadTooDeep` is raised.
        - There is no second, weaker form to fall back to.
        """
        ...

    def encode_untyped(self, value: object, *, where: str = "value") -> msgspec.Raw:
        """The text of a value for which no type is declared where it is sent; the receiver chooses one.

        - `decode` with the type that fits gives the value back; without a type, at least JSON's own
          kinds come back as they were, and objects of classes as plain data.
        - What cannot be sent so is refused as by `encode`.
        """
        return self.encode(value, where=where)

    def decode(self, data: msgspec.Raw | bytes, type: Any = Any, *, where: str = "value") -> Any:
        """The value that `encode` was given.

        - Also reads JSON that others have written, with whatever whitespace.
        - Bytes that are damaged, of an unknown form, or that do not fit `type` raise `Undecodable`
          with `where` and the first place that does not fit. No other error stands for bad bytes.
        - Each call builds a new value: two callers never share one that can be changed.
        - `NotSerializable` means that `type` itself is nothing the codec could ever build.
        """
        ...

    def schema(self, type: Any) -> msgspec.Raw | None:
        """The JSON schema of the texts that `decode` reads as this type, for senders who do not have the type; None if
        any text may be one, or the codec does not know."""
        return None

    def roundtrip(
        self, value: object, type: Any = Any, *, where: str = "value"
    ) -> tuple[msgspec.Raw, Any]:
        """`encode`, and what `decode` would give back, in one go.

        The first execution hands on the decoded value, so that it sees what a replay would see.
        Raises what `encode` raises; nothing was written by then. A codec that checks its work by
        decoding anyway should override this and decode once.
        """
        data = self.encode(value, type, where=where)
        return data, self.decode(data, type, where=where)


class Transform(Protocol):
    """Bytes to other bytes and back: compression, encryption."""

    @property
    def tag(self) -> str:
        """The name that is stored with what this has made, so that it can be undone later.

        Lower-case letters, digits and hyphens. It is a promise about stored data: a new format
        needs a new tag. ``json``, ``fact`` and ``typed`` are taken.
        """
        ...

    def forward(self, data: bytes) -> bytes | None:
        """The transformed bytes, or None to leave `data` as it is.

        Anything returned here must be something that `backward` of the same object accepts.
        """
        ...

    def backward(self, data: bytes) -> bytes:
        """What `forward` was given.

        `data` may be damaged or forged: whatever is raised here is reported as `Undecodable`.
        Memory must stay bounded by a limit, however small `data` is.
        """
        ...
