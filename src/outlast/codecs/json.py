"""Values as JSON, types restored by annotation: the codec that outlast uses unless told otherwise.

msgspec does the work in both directions. Around it stands one rule: a value is decoded again as
soon as it is encoded, and refused unless it has come back the same (see `fidelity`)::

    value ── msgspec ──▶ text ── msgspec, by annotation ──▶ back
      └───────────────────── same? ──────────────────────────┘

So an annotation that forgets something, a field that a class does not restore, or a NaN deep in a
list is found while the caller is still there to be told, and before anything is written. It costs
little, because the engine needs the decoded value anyway: it hands that on, and not the original.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NoReturn

import msgspec

from outlast.codecs import chain, fidelity, models
from outlast.codecs.chain import Chain
from outlast.codecs.fidelity import same
from outlast.errors import (
    InvalidValue,
    NotSerializable,
    PayloadError,
    PayloadTooDeep,
    PayloadTooLarge,
    Undecodable,
)
from outlast.ports.codec import Codec, Transform

MIB = 1024 * 1024
OBJECT = ord("{")

Read = Callable[[bytes | msgspec.Raw], Any]


class JsonCodec(Codec):
    """JSON by msgspec.

    `max_bytes` limits the text and `max_depth` the containers inside each other, when a value is
    encoded. What is stored stays readable if they are lowered later.
    """

    def __init__(self, *, max_bytes: int = 16 * MIB, max_depth: int = 64) -> None:
        if max_bytes < 1 or max_depth < 1:
            raise InvalidValue("max_bytes and max_depth are at least 1")
        self.max_bytes = max_bytes
        self.max_depth = max_depth
        self._write = msgspec.json.Encoder(enc_hook=_write_custom).encode
        # Annotations are few and reused without end. Those made on the fly must not pile up.
        self._reader = lru_cache(maxsize=1024)(_reader)

    def __repr__(self) -> str:
        return f"JsonCodec(max_bytes={self.max_bytes}, max_depth={self.max_depth})"

    def __or__(self, transform: Transform) -> Chain:
        """``JsonCodec() | Zlib()``: this codec, and then that transform."""
        return Chain(self, transform)

    def encode(self, value: object, type: Any = Any, *, where: str = "value") -> msgspec.Raw:
        return self.roundtrip(value, type, where=where)[0]

    def roundtrip(
        self, value: object, type: Any = Any, *, where: str = "value"
    ) -> tuple[msgspec.Raw, Any]:
        try:
            read = self._reader(type)
        except Exception:  # noqa: BLE001 - tried once more, and told, there
            read = self._read_uncached(type, where)
        try:
            text = self._write(value)
            if len(text) > self.max_bytes:
                raise PayloadTooLarge(
                    f"{where}: {len(text):,} bytes of JSON are more than the {self.max_bytes:,} "
                    "allowed. Store the data elsewhere and pass its name, or raise max_bytes"
                )
            back = read(text)
            if not same(value, back, self.max_depth):
                self._refuse_change(value, back, where)
        except (PayloadError, MemoryError):
            raise
        except RecursionError as error:
            raise self._too_deep(where) from error
        except msgspec.ValidationError as error:
            raise self._mismatch(value, error, where) from error
        except Exception as error:
            raise self._no_form(value, error, where) from error
        # An envelope is an object: all else needs no look.
        return (chain.escape(text) if text[0] == OBJECT else msgspec.Raw(text)), back

    def decode(self, data: msgspec.Raw | bytes, type: Any = Any, *, where: str = "value") -> Any:
        try:
            read = self._reader(type)
        except Exception:  # noqa: BLE001 - tried once more, and told, there
            read = self._read_uncached(type, where)
        found = chain.unwrap(data)
        if found is not None:
            tag, data = found
            if tag != chain.JSON:
                raise Undecodable(
                    f"{where}: stored in the form {'~' + tag!r}, which this codec cannot read. Add "
                    "the transform that wrote it to the codec"
                )
        try:
            return read(data)
        except MemoryError:
            raise
        except RecursionError as error:
            raise Undecodable(f"{where}: nested too deeply to be read") from error
        except msgspec.ValidationError as error:
            path, complaint = fidelity.split(str(error))
            raise Undecodable(
                f"{fidelity.place(where, path)}: stored data does not fit the annotation "
                f"{fidelity.annotation(type)}: {complaint}"
            ) from error
        except Exception as error:
            # Malformed text, and whatever a user's class raises while it is built.
            raise Undecodable(f"{where}: cannot be read: {_described(error)}") from error

    # -- why not ----------------------------------------------------------------------------------

    def _read_uncached(self, type: Any, where: str) -> Read:
        # Either the cache has no place for it, as for Annotated[int, [...]], or msgspec has none.
        try:
            return _reader(type)
        except Exception as error:
            raise NotSerializable(
                f"{where}: cannot be stored as {fidelity.annotation(type)}: {_impossible(type, error)}"
            ) from error

    def _too_deep(self, where: str) -> PayloadTooDeep:
        return PayloadTooDeep(
            f"{where}: nested deeper than {self.max_depth} levels, or part of itself. Flatten it, "
            "or refer to the inner parts by id"
        )

    def _refuse_change(self, value: object, back: Any, where: str) -> NoReturn:
        path, given, came = fidelity.first_different(value, back, self.max_depth)
        raise NotSerializable(
            f"{fidelity.place(where, path)}: {fidelity.would_change(given, came)}"
        )

    def _mismatch(self, value: object, error: Exception, where: str) -> PayloadError:
        if fidelity.holds_not_finite(value, self.max_depth):  # it was read as null, say what it is
            search = partial(fidelity.holds_not_finite, depth=self.max_depth)
            path, found = fidelity.first_failing(value, search, self.max_depth)
            complaint = fidelity.would_change(found, None)
        else:
            path, complaint = fidelity.split(str(error))
            complaint += ". Mend the annotation, or the value"
        return NotSerializable(f"{fidelity.place(where, path)}: {complaint}")

    def _no_form(self, value: object, error: Exception, where: str) -> PayloadError:
        if not self._fails(value):  # it was written, but could not be read or compared
            return NotSerializable(f"{where}: would not come back: {_described(error)}")
        try:
            path, found = fidelity.first_failing(value, self._fails, self.max_depth)
        except RecursionError:
            return self._too_deep(where)
        return NotSerializable(f"{fidelity.place(where, path)}: {fidelity.no_form(found)}")

    def _fails(self, value: object) -> bool:
        try:
            self._write(value)
        except Exception:  # noqa: BLE001 - that it fails is the answer
            return True
        return False


def _reader(annotation: Any) -> Read:
    if annotation is inspect.Parameter.empty:
        annotation = Any
    if models.is_model(annotation):
        # Pydantic would also read NaN and Infinity, which are no JSON.
        return lambda data: models.read(annotation, _checked(data))
    return msgspec.json.Decoder(annotation, dec_hook=_read_custom).decode


_checked = msgspec.json.Decoder(msgspec.Raw).decode


def _write_custom(value: Any) -> Any:
    if models.is_model(type(value)):
        return models.write(value)
    raise TypeError(f"{fidelity.annotation(type(value))} has no JSON form")


def _read_custom(kind: Any, data: Any) -> Any:
    if kind is object:  # `dict[str, object]` is how careful people write Any
        return data
    if models.is_model(kind):
        # msgspec has parsed it already, but a model reads JSON by other rules than Python values.
        return models.read(kind, msgspec.json.encode(data))
    raise TypeError(
        f"{fidelity.annotation(kind)} is not a type of data that can be stored: use a dataclass, a "
        "msgspec.Struct, list, tuple, dict or another type of data"
    )


def _impossible(annotation: Any, error: Exception) -> str:
    reason = str(error).split(" - type `")[0]
    if isinstance(annotation, str):
        return "it is still a string. Resolve it with typing.get_type_hints"
    if isinstance(error, NameError):
        return f"{reason}. Import it where the class is defined, not only for type checkers"
    if "union" in reason.lower():
        return (
            f"{reason}, since JSON would not tell them apart. Say which it is: make each a "
            "msgspec.Struct with tag=True, or store one class that has a field for each case"
        )
    if "Enum" in reason:
        return f"{reason}. Change the values, or store the member's name"
    return f"{reason}. Use types of data: dataclasses, Structs, lists, dicts and the like"


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
