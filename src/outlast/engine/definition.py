"""Definitions: a user's functions as outlast knows them, and how their values are recorded.

Arguments are recorded as one JSON object by parameter name, so that a person can read them and a
form can be made of them; each is encoded by its own annotation, and so is the result.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Raw

from outlast.errors import Undecodable, WorkflowMisuse
from outlast.ports.codec import Codec


class Signature:
    """The parameters and result of a function, with their annotations."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._name = getattr(function, "__qualname__", repr(function))

    def encode_call(
        self, codec: Codec, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Raw, tuple[Any, ...], dict[str, Any]]:
        """The recorded form of a call, and its arguments as a replay would see them."""
        try:
            bound = self._parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise WorkflowMisuse(f"{self._name}() was called wrongly: {error}") from None
        encoded: dict[str, Raw] = {}
        for name, value in bound.arguments.items():
            where = f"argument {name!r} of {self._name}"
            encoded[name], bound.arguments[name] = codec.roundtrip(
                value, self._hints[name], where=where
            )
        return Raw(msgspec.json.encode(encoded)), bound.args, bound.kwargs

    def decode_call(self, codec: Codec, input: Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a recorded call."""
        try:
            recorded = msgspec.json.decode(input, type=dict[str, Raw])
            bound = self._parameters.bind_partial()
            for name, value in recorded.items():
                where = f"argument {name!r} of {self._name}"
                bound.arguments[name] = codec.decode(value, self._hints[name], where=where)
        except (msgspec.DecodeError, KeyError) as error:
            raise Undecodable(
                f"the recorded input of {self._name} does not fit: {error}"
            ) from error
        return bound.args, bound.kwargs

    def encode_result(self, codec: Codec, value: Any) -> Raw:
        """The recorded form of a result."""
        return codec.encode(value, self._hints["return"], where=f"result of {self._name}")

    def decode_result(self, codec: Codec, output: Raw) -> Any:
        """A recorded result."""
        return codec.decode(output, self._hints["return"], where=f"result of {self._name}")

    @cached_property
    def _parameters(self) -> inspect.Signature:
        return inspect.signature(self._function)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        # Resolved at the first call, not at decoration, so that types defined further down count.
        hints = typing.get_type_hints(self._function, include_extras=True)
        found: dict[str, Any] = {"return": hints.get("return", Any)}
        for name, parameter in self._parameters.parameters.items():
            hint = hints.get(name, Any)
            if parameter.kind is parameter.VAR_POSITIONAL:
                hint = tuple.__class_getitem__((hint, ...))
            elif parameter.kind is parameter.VAR_KEYWORD:
                hint = dict.__class_getitem__((str, hint))
            found[name] = hint
        return found


class Definition:
    """A user's function under the name by which history knows it."""

    def __init__(self, function: Callable[..., Any], *, name: str | None = None) -> None:
        self.function = function
        self.name = name or function.__name__
        self.signature = Signature(function)
        self.is_async = inspect.iscoroutinefunction(function)


class StepDefinition(Definition):
    """A step."""

    def __init__(
        self, function: Callable[..., Any], *, name: str | None = None, attempts: int = 1
    ) -> None:
        super().__init__(function, name=name)
        self.attempts = attempts


class WorkflowDefinition(Definition):
    """A workflow."""

    def __init__(
        self, function: Callable[..., Any], *, name: str | None = None, version: int | str = 1
    ) -> None:
        super().__init__(function, name=name)
        self.version = version
