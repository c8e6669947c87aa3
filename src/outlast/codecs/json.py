"""JsonCodec: values as JSON, with types restored by annotation. The default codec.

msgspec encodes and decodes. One rule is added: each value is decoded again right after it is encoded,
and refused if the result is not the same value (see `roundtrip`)::

    value ── msgspec ──▶ text ── msgspec, by annotation ──▶ back
      └───────────────────── same? ──────────────────────────┘

So an incomplete annotation, a field that a class does not restore, or a NaN deep in a list raises in the
caller, before anything is written. The cost is small, because the engine needs the decoded value: it
passes that on, and not the original.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NoReturn

import msgspec

from outlast.codecs import chain, models, roundtrip, untyped
from outlast.codecs.chain import Chain
from outlast.codecs.roundtrip import same
from outlast.codecs.schema import schema_of
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

    `max_bytes` limits the length of the text and `max_depth` the nesting of containers, when a value is
    encoded. Lowering a limit does not make stored values unreadable.
    """

    def __init__(self, *, max_bytes: int = 16 * MIB, max_depth: int = 64) -> None:
        if max_bytes < 1 or max_depth < 1:
            raise InvalidValue(
                f"max_bytes={max_bytes}, max_depth={max_depth} is not possible: both must be at least 1"
            )
        self.max_bytes = max_bytes
        self.max_depth = max_depth
        self._write = msgspec.json.Encoder(enc_hook=_write_custom).encode
        # A program has few annotations and reuses them; the limit is for those created dynamically.
        self._reader = lru_cache(maxsize=1024)(_reader)

    def __repr__(self) -> str:
        return f"JsonCodec(max_bytes={self.max_bytes}, max_depth={self.max_depth})"

    def __or__(self, transform: Transform) -> Chain:
        """``JsonCodec() | Zlib()``: this codec, followed by the transform."""
        return Chain(self, transform)

    def encode(self, value: object, type: Any = Any, *, where: str = "value") -> msgspec.Raw:
        return self.roundtrip(value, type, where=where)[0]

    def roundtrip(
        self, value: object, type: Any = Any, *, where: str = "value"
    ) -> tuple[msgspec.Raw, Any]:
        try:
            read = self._reader(type)
        except Exception:  # noqa: BLE001 - _read_uncached tries again and raises a typed error
            read = self._read_uncached(type, where)
        try:
            text = self._write(value)
            if len(text) > self.max_bytes:
                raise self._too_large(text, where)
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
        # Only an object can look like an envelope.
        return (chain.escape(text) if text[0] == OBJECT else msgspec.Raw(text)), back

    def encode_untyped(self, value: object, *, where: str = "value") -> msgspec.Raw:
        kind = type(value)
        if untyped.has_class(kind):
            return self.encode(value, kind, where=where)
        try:
            return self.encode(value, where=where)
        except NotSerializable:  # not all of it is of JSON's own kinds
            return self._encode_kinds(value, where)

    def _encode_kinds(self, value: object, where: str) -> msgspec.Raw:
        def data_of(part: Any) -> Any:
            return msgspec.json.decode(self.roundtrip(part, type(part), where=where)[0])

        types: list[untyped.Entry] = []
        try:
            data = untyped.as_data(value, data_of, self.max_depth)
            text = self._write(untyped.written(data, types))
            back = untyped.restored(msgspec.json.decode(text), types)
            if not same(data, back, self.max_depth):
                self._refuse_change(data, back, where)
        except (PayloadError, MemoryError):
            raise
        except RecursionError as error:
            raise self._too_deep(where) from error
        except Exception as error:
            raise self._no_form(value, error, where) from error
        if len(text) > self.max_bytes:
            raise self._too_large(text, where)
        if not types:  # objects of classes, and else only JSON's own kinds
            return chain.escape(text)
        return chain.wrap(chain.TYPED, msgspec.json.encode(untyped.Typed(msgspec.Raw(text), types)))

    def schema(self, type: Any) -> msgspec.Raw | None:
        return schema_of(type)

    def decode(self, data: msgspec.Raw | bytes, type: Any = Any, *, where: str = "value") -> Any:
        try:
            read = self._reader(type)
        except Exception:  # noqa: BLE001 - _read_uncached tries again and raises a typed error
            read = self._read_uncached(type, where)
        found = chain.unwrap(data)
        if found is not None:
            tag, data = found
            if tag == chain.TYPED:
                read = partial(_read_typed, read, type)
            elif tag != chain.JSON:
                raise Undecodable(
                    f"{where}: stored as {'~' + tag!r}, which this codec cannot decode. Add the transform "
                    "that wrote the value to the codec"
                )
        try:
            return read(data)
        except MemoryError:
            raise
        except RecursionError as error:
            raise Undecodable(f"{where}: nested too deeply to be decoded") from error
        except msgspec.ValidationError as error:
            path, complaint = roundtrip.split(str(error))
            raise Undecodable(
                f"{roundtrip.place(where, path)}: stored data does not fit the annotation "
                f"{roundtrip.annotation(type)}: {complaint}"
            ) from error
        except Exception as error:
            # Malformed text, or an exception from the constructor of a user's class.
            raise Undecodable(f"{where}: cannot be decoded: {_described(error)}") from error

    # -- errors -----------------------------------------------------------------------------------

    def _read_uncached(self, type: Any, where: str) -> Read:
        # The annotation cannot be hashed, as in Annotated[int, [...]], or msgspec does not support it.
        try:
            return _reader(type)
        except Exception as error:
            raise NotSerializable(
                f"{where}: cannot be stored as {roundtrip.annotation(type)}: {_impossible(type, error)}"
            ) from error

    def _too_large(self, text: bytes, where: str) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"{where}: {len(text):,} bytes of JSON are more than the {self.max_bytes:,} "
            "allowed. Store the data elsewhere and pass its name, or raise max_bytes"
        )

    def _too_deep(self, where: str) -> PayloadTooDeep:
        return PayloadTooDeep(
            f"{where}: nested deeper than {self.max_depth} levels, or contains itself. Flatten it, "
            "or refer to the inner parts by id"
        )

    def _refuse_change(self, value: object, back: Any, where: str) -> NoReturn:
        path, given, came = roundtrip.first_different(value, back, self.max_depth)
        raise NotSerializable(
            f"{roundtrip.place(where, path)}: {roundtrip.would_change(given, came)}"
        )

    def _mismatch(self, value: object, error: Exception, where: str) -> PayloadError:
        if roundtrip.holds_not_finite(value, self.max_depth):  # msgspec reports its null instead
            search = partial(roundtrip.holds_not_finite, depth=self.max_depth)
            path, found = roundtrip.first_failing(value, search, self.max_depth)
            complaint = roundtrip.would_change(found, None)
        else:
            path, complaint = roundtrip.split(str(error))
            complaint += ". Correct the annotation or the value"
        return NotSerializable(f"{roundtrip.place(where, path)}: {complaint}")

    def _no_form(self, value: object, error: Exception, where: str) -> PayloadError:
        if not self._fails(value):  # it was encoded, but cannot be decoded or compared
            return NotSerializable(f"{where}: cannot be decoded again: {_described(error)}")
        try:
            path, found = roundtrip.first_failing(value, self._fails, self.max_depth)
        except RecursionError:
            return self._too_deep(where)
        return NotSerializable(f"{roundtrip.place(where, path)}: {roundtrip.no_form(found)}")

    def _fails(self, value: object) -> bool:
        try:
            self._write(value)
        except Exception:  # noqa: BLE001 - any failure is the answer
            return True
        return False


def _reader(annotation: Any) -> Read:
    if annotation is inspect.Parameter.empty:
        annotation = Any
    if models.is_model(annotation):
        # Pydantic also accepts NaN and Infinity, which are not JSON.
        return lambda data: models.read(annotation, _checked(data))
    return msgspec.json.Decoder(annotation, dec_hook=_read_custom).decode


def _read_typed(read: Read, annotation: Any, data: bytes | msgspec.Raw) -> Any:
    """A value that was sent without a declared type, by the annotation of its receiver."""
    found = _typed(data)
    if models.is_model(annotation) or not untyped.leaves_open(annotation):
        return read(found.value)
    value = untyped.restored(msgspec.json.decode(found.value), found.types)
    if annotation is Any or annotation is inspect.Parameter.empty:
        return value
    return msgspec.convert(value, annotation, dec_hook=_read_custom, str_keys=True)


_typed = msgspec.json.Decoder(untyped.Typed).decode
_checked = msgspec.json.Decoder(msgspec.Raw).decode


def _write_custom(value: Any) -> Any:
    if models.is_model(type(value)):
        return models.write(value)
    raise TypeError(f"{roundtrip.annotation(type(value))} has no JSON form")


def _read_custom(kind: Any, data: Any) -> Any:
    if kind is object:  # as in `dict[str, object]`: the same as Any
        return data
    if models.is_model(kind):
        # msgspec has parsed the text, but a model validates JSON by other rules than Python values.
        return models.read(kind, msgspec.json.encode(data))
    raise TypeError(
        f"{roundtrip.annotation(kind)} is not a type that can be stored: use a dataclass, a "
        "msgspec.Struct, list, tuple, dict or another data type"
    )


def _impossible(annotation: Any, error: Exception) -> str:
    reason = str(error).split(" - type `")[0]
    if isinstance(annotation, str):
        return "it is still a string. Resolve it with typing.get_type_hints"
    if isinstance(error, NameError):
        return f"{reason}. Import it where the class is defined, not only for type checkers"
    if "union" in reason.lower():
        return (
            f"{reason}, because JSON does not distinguish them. Make each a msgspec.Struct with tag=True, "
            "or store one class that has a field for each case"
        )
    if "Enum" in reason:
        return f"{reason}. Change the values, or store the member's name"
    return f"{reason}. Use data types: dataclasses, Structs, lists, dicts"


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
