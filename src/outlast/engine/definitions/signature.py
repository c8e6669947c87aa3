"""Signature: how the arguments and the result of a user's function are recorded.

Arguments are recorded as one JSON object by parameter name, which people can read and forms can be built from. Each is
encoded by its annotation, and so is the result.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Raw

from outlast.errors import PayloadTooLarge, Undecodable, WorkflowMisuse
from outlast.model.validation import MAX_PAYLOAD_BYTES
from outlast.ports.codec import Codec

POSITIONAL = "*"
"""In a recorded call of a client without the code: the arguments by position. No parameter has this name."""

_encode = msgspec.json.Encoder().encode
_arguments = msgspec.json.Decoder(dict[str, Raw]).decode


class Signature:
    """The parameters and result of a function, with their annotations."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._name = getattr(function, "__qualname__", repr(function))
        self._result = f"result of {self._name}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(self._parameters.parameters)

    @property
    def text(self) -> str:
        """The signature as it is written, for error messages."""
        return str(self._parameters)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise the TypeError of a call whose arguments do not fit."""
        if not kwargs and len(args) == self._most:
            return  # most calls: binding costs more
        try:
            self._parameters.bind(*args, **kwargs)
        except TypeError as error:
            name = getattr(self._function, "__name__", self._name)
            raise TypeError(f"{name}{self.text} was called with other arguments: {error}") from None

    def argument(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value that a parameter has in a call."""
        bound = self._parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments[name]

    def encode_call(
        self, codec: Codec, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Raw, tuple[Any, ...], dict[str, Any]]:
        """The recorded form of a call, and its arguments as a replay would decode them."""
        plain = self._plain
        if plain is not None and not kwargs and len(args) == len(plain):
            # The fast path of most calls: binding is the most expensive part.
            texts, values = {}, []
            for (name, hint, where), value in zip(plain, args, strict=True):
                texts[name], decoded = codec.roundtrip(value, hint, where=where)
                values.append(decoded)
            return self._whole(_encode(texts)), tuple(values), {}
        try:
            bound = self._parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise WorkflowMisuse(
                f"{self._name}() was called with wrong arguments: {error}"
            ) from None
        encoded: dict[str, Raw] = {}
        for name, value in bound.arguments.items():
            where = f"argument {name!r} of {self._name}"
            encoded[name], bound.arguments[name] = codec.roundtrip(
                value, self._hints[name], where=where
            )
        return self._whole(_encode(encoded)), bound.args, bound.kwargs

    def _whole(self, call: bytes) -> Raw:
        """Check the size of all arguments together: they are one record."""
        if len(call) > MAX_PAYLOAD_BYTES:
            raise PayloadTooLarge(
                f"the arguments of {self._name} have {len(call):,} bytes of JSON together, the limit "
                f"is {MAX_PAYLOAD_BYTES:,}: store the data outside outlast and pass its name"
            )
        return Raw(call)

    def decode_call(self, codec: Codec, input: Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a recorded call."""
        try:
            recorded = _arguments(input)
            plain = self._plain
            if plain is not None and [name for name, _, _ in plain] == list(recorded):
                values = [
                    codec.decode(recorded[name], hint, where=where) for name, hint, where in plain
                ]
                return tuple(values), {}
            if POSITIONAL in recorded:
                recorded = self._by_name(recorded)
            bound = self._parameters.bind_partial()
            for name, value in recorded.items():
                where = f"argument {name!r} of {self._name}"
                bound.arguments[name] = codec.decode(value, self._hints[name], where=where)
        except KeyError as error:
            raise Undecodable(f"{self._name} has no argument {error}") from error
        except msgspec.DecodeError as error:
            raise Undecodable(
                f"the recorded input of {self._name} does not fit: {error}"
            ) from error
        return bound.args, bound.kwargs

    def _by_name(self, recorded: dict[str, Raw]) -> dict[str, Raw]:
        """A recorded call with arguments by position, as the code would have recorded it."""
        positional = msgspec.json.decode(recorded.pop(POSITIONAL), type=list[Raw])
        try:
            found = self._parameters.bind_partial(*positional, **recorded).arguments
        except TypeError as error:
            raise Undecodable(f"{self._name}{self.text} does not fit: {error}") from None
        return {
            name: value if isinstance(value, Raw) else Raw(_encode(value))
            for name, value in found.items()
        }

    def edit_call(
        self,
        codec: Codec,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        changes: dict[str, Any],
    ) -> Raw:
        """The recorded form of a call with some arguments, by name, replaced by others."""
        bound = self._parameters.bind(*args, **kwargs)
        for name, value in changes.items():
            if name not in self._parameters.parameters:
                raise WorkflowMisuse(f"{self._name}() has no argument {name!r}")
            where = f"argument {name!r} of {self._name}"
            # Raw is JSON that is encoded already: that of the command line.
            is_encoded = isinstance(value, Raw)
            bound.arguments[name] = (
                codec.decode(value, self._hints[name], where=where) if is_encoded else value
            )
        return self.encode_call(codec, bound.args, bound.kwargs)[0]

    def encode_result(self, codec: Codec, value: Any) -> Raw:
        """The recorded form of a result."""
        return codec.encode(value, self._hints["return"], where=self._result)

    def encode_answer(self, codec: Codec, value: Any) -> Raw:
        """The recorded form of a result whose reader chooses a type if the function declares none."""
        if self._hints["return"] is Any:
            return codec.encode_untyped(value, where=self._result)
        return self.encode_result(codec, value)

    def roundtrip_result(self, codec: Codec, value: Any) -> tuple[Raw, Any]:
        """The recorded form of a result, and the result as a replay would decode it."""
        return codec.roundtrip(value, self._hints["return"], where=self._result)

    def decode_result(self, codec: Codec, output: Raw) -> Any:
        """A recorded result."""
        return codec.decode(output, self._hints["return"], where=self._result)

    def roundtrip_first(self, codec: Codec, value: Any) -> tuple[Raw, Any]:
        """The recorded form of a value for the first parameter, and the value as a replay would decode it."""
        return codec.roundtrip(value, self._first, where=f"argument of {self._name}")

    def decode_first(self, codec: Codec, data: Raw) -> Any:
        """A recorded value for the first parameter."""
        return codec.decode(data, self._first, where=f"argument of {self._name}")

    @property
    def takes_any(self) -> bool:
        """Whether the function has a parameter."""
        return bool(self._parameters.parameters)

    @cached_property
    def _first(self) -> Any:
        return next((self._hints[name] for name in self._parameters.parameters), Any)

    @cached_property
    def _most(self) -> int:
        """The number of parameters, if each can be given by position; -1 otherwise."""
        parameters = self._parameters.parameters.values()
        if any(
            one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters
        ):
            return -1
        return len(parameters)

    @cached_property
    def _plain(self) -> tuple[tuple[str, Any, str], ...] | None:
        """The parameters if each can be given by position and by name: name, annotation, and its name in errors."""
        parameters = self._parameters.parameters.values()
        if any(parameter.kind is not parameter.POSITIONAL_OR_KEYWORD for parameter in parameters):
            return None
        names = [parameter.name for parameter in parameters]
        return tuple(
            (name, self._hints[name], f"argument {name!r} of {self._name}") for name in names
        )

    @cached_property
    def _parameters(self) -> inspect.Signature:
        return inspect.signature(self._function)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        # Resolved at the first call, not at decoration, so that types defined further down are found.
        try:
            hints = typing.get_type_hints(self._function, include_extras=True)
        except Exception as error:  # whatever evaluating an annotation raises
            raise WorkflowMisuse(
                f"the annotations of {self._name} cannot be read ({error}): values are stored and "
                "restored by them. Import what they name where the program runs, not under "
                "`if TYPE_CHECKING`, and define classes at the top of a module"
            ) from error
        found: dict[str, Any] = {"return": hints.get("return", Any)}
        for name, parameter in self._parameters.parameters.items():
            hint = hints.get(name, Any)
            if parameter.kind is parameter.VAR_POSITIONAL:
                hint = tuple.__class_getitem__((hint, ...))
            elif parameter.kind is parameter.VAR_KEYWORD:
                hint = dict.__class_getitem__((str, hint))
            found[name] = hint
        return found
