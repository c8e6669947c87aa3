"""Definitions: a user's functions as outlast knows them, and how their values are recorded.

Arguments are recorded as one JSON object by parameter name, so that a person can read them and a
form can be made of them; each is encoded by its own annotation, and so is the result.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import math
import textwrap
import typing
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from outlast.engine.bridge import run_in_thread
from outlast.engine.process import module_of
from outlast.engine.retry import ONCE, Retry, is_number
from outlast.errors import InvalidValue, PayloadTooLarge, Undecodable, WorkflowMisuse
from outlast.model.checks import MAX_PAYLOAD_BYTES
from outlast.model.flow import check_key, check_queue
from outlast.model.ids import check_name
from outlast.ports.codec import Codec

if TYPE_CHECKING:
    from outlast.engine.execution import Execution


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

    def argument(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value that a parameter has in a call."""
        bound = self._parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments[name]

    def encode_call(
        self, codec: Codec, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Raw, tuple[Any, ...], dict[str, Any]]:
        """The recorded form of a call, and its arguments as a replay would see them."""
        plain = self._plain
        if plain is not None and not kwargs and len(args) == len(plain):
            # Most calls are like this, and binding is the dearest part of them.
            texts, values = {}, []
            for (name, hint, where), value in zip(plain, args, strict=True):
                texts[name], decoded = codec.roundtrip(value, hint, where=where)
                values.append(decoded)
            return self._whole(_encode(texts)), tuple(values), {}
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
        return self._whole(_encode(encoded)), bound.args, bound.kwargs

    def _whole(self, call: bytes) -> Raw:
        """Each argument may be as large as the codec allows; all together they are one record."""
        if len(call) > MAX_PAYLOAD_BYTES:
            raise PayloadTooLarge(
                f"the arguments of {self._name} have {len(call):,} bytes of JSON together, the limit "
                f"is {MAX_PAYLOAD_BYTES:,}: store the data elsewhere and pass its name"
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
            bound = self._parameters.bind_partial()
            for name, value in recorded.items():
                where = f"argument {name!r} of {self._name}"
                bound.arguments[name] = codec.decode(value, self._hints[name], where=where)
        except (msgspec.DecodeError, KeyError) as error:
            raise Undecodable(
                f"the recorded input of {self._name} does not fit: {error}"
            ) from error
        return bound.args, bound.kwargs

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
            bound.arguments[name] = value
        return self.encode_call(codec, bound.args, bound.kwargs)[0]

    def encode_result(self, codec: Codec, value: Any) -> Raw:
        """The recorded form of a result."""
        return codec.encode(value, self._hints["return"], where=self._result)

    def roundtrip_result(self, codec: Codec, value: Any) -> tuple[Raw, Any]:
        """The recorded form of a result, and the result as a replay would see it."""
        return codec.roundtrip(value, self._hints["return"], where=self._result)

    def decode_result(self, codec: Codec, output: Raw) -> Any:
        """A recorded result."""
        return codec.decode(output, self._hints["return"], where=self._result)

    def roundtrip_first(self, codec: Codec, value: Any) -> tuple[Raw, Any]:
        """A value for the first parameter, recorded, and as a replay would see it."""
        return codec.roundtrip(value, self._first, where=f"argument of {self._name}")

    def decode_first(self, codec: Codec, data: Raw) -> Any:
        """A recorded value for the first parameter."""
        return codec.decode(data, self._first, where=f"argument of {self._name}")

    @property
    def takes_any(self) -> bool:
        """Whether the function takes an argument at all."""
        return bool(self._parameters.parameters)

    @cached_property
    def _first(self) -> Any:
        return next((self._hints[name] for name in self._parameters.parameters), Any)

    @cached_property
    def _plain(self) -> tuple[tuple[str, Any, str], ...] | None:
        """The parameters, if each can be given by position and by name: name, annotation, and
        what it is called in an error."""
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
        # Resolved at the first call, not at decoration, so that types defined further down count.
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


def type_of_value(value: object) -> Any:
    """The annotation for a value at a place that has none, because who reads it says what it is: a
    signal, an answer, something published, a report. An object with fields is its own type; all
    else has to be plain JSON, so that it comes back the same wherever it is read."""
    kind = type(value)
    fields = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__", "model_fields")
    return kind if any(hasattr(kind, name) for name in fields) else Any


def check_function(function: Any) -> None:
    """Refuse what cannot be a step or a workflow, and say how to write it."""
    if isinstance(getattr(function, "definition", None), Definition):
        raise WorkflowMisuse(
            f"{function.__name__} is a step or a workflow already: decorate the function once"
        )
    if isinstance(function, staticmethod | classmethod):
        raise WorkflowMisuse(
            f"{function.__func__.__qualname__}: put @staticmethod above the decorator of outlast, "
            "not below it; a class method cannot be one, because a class is not data"
        )
    if not callable(function) or isinstance(function, type) or not hasattr(function, "__name__"):
        raise WorkflowMisuse(
            f"{function!r} is not a function: decorate a `def`, and give options by name, as in "
            "@outlast.step(name='charge')"
        )
    code = getattr(function, "__code__", None)
    if code is not None and code.co_argcount and code.co_varnames[0] in ("self", "cls"):
        raise WorkflowMisuse(
            f"{function.__qualname__} is a method: what it works on would have to be recorded with "
            "every call. Use a function, or a @staticmethod, and pass it the data that it needs"
        )


def _name_of(function: Callable[..., Any]) -> str:
    if function.__name__ == "<lambda>":
        raise WorkflowMisuse(
            "a lambda has no name, and history would know it by that: use a `def`, or name=…"
        )
    return function.__name__


class Definition:
    """A user's function under the name by which history knows it."""

    def __init__(self, function: Callable[..., Any], *, name: str | None = None) -> None:
        check_function(function)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise WorkflowMisuse(
                f"{function.__qualname__} is a generator: its values could not be recorded. "
                "Return a list, or call a step for each value"
            )
        self.function = function
        self.name = check_name(_name_of(function) if name is None else name, "name")
        self.signature = Signature(function)
        self.is_async = inspect.iscoroutinefunction(function)


class StepDefinition(Definition):
    """A step, and how it is tried."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retry: Retry = ONCE,
        timeout: float | None = None,
        at_most_once: bool = False,
        process: bool = False,
        queue: str | None = None,
        key: str | Callable[..., str] | None = None,
        priority: int | Callable[..., int] = 0,
        transactional: bool = False,
    ) -> None:
        super().__init__(function, name=name)
        if "/" in self.name or "#" in self.name or ":" in self.name:
            raise WorkflowMisuse(f"step name {self.name!r} contains '/', '#' or ':': leave it out")
        if not isinstance(retry, Retry):
            raise InvalidValue(f"retry={retry!r}: use retry=outlast.Retry(attempts=…)")
        if timeout is not None and not (is_number(timeout) and 0 < timeout < math.inf):
            raise InvalidValue(
                f"timeout={timeout!r}: a step needs a positive timeout in seconds, or None"
            )
        self.retry = retry
        self.timeout = timeout
        self.at_most_once = at_most_once
        if process and module_of(function) is None:
            raise WorkflowMisuse(
                f"step {self.name!r} runs in a process of its own, where it is imported by its name, and "
                f"{function.__qualname__} cannot be: define it at the top of a module, or of a script"
            )
        self.process = process
        if transactional and (process or queue is not None):
            raise WorkflowMisuse(
                f"step {self.name!r} is transactional, so it has to run where its run is: without "
                "process and queue"
            )
        self.transactional = transactional
        self.queue = None if queue is None else check_queue(queue)
        if queue is None and (key is not None or priority != 0):
            raise WorkflowMisuse(
                f"step {self.name!r} has a key or a priority but no queue: they say whose turn it is "
                "in a queue, so give it one: step(queue=…)"
            )
        if isinstance(key, str) and key not in self.signature.names:
            raise WorkflowMisuse(
                f"step {self.name!r} has no parameter {key!r} to be its key: it has "
                f"{', '.join(self.signature.names) or 'none'}"
            )
        self._key = key
        self._priority = priority
        self.in_thread = not self.is_async and not process
        self.compensation: StepDefinition | None = None

    def line(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int]:
        """The key and the priority of a call in its queue."""
        key: Any = ""
        if callable(self._key):
            key = self._key(*args, **kwargs)
        elif self._key is not None:
            key = self.signature.argument(self._key, args, kwargs)
        priority = self._priority(*args, **kwargs) if callable(self._priority) else self._priority
        if not isinstance(key, str):
            raise InvalidValue(
                f"the key of step {self.name!r} is {key!r}: it has to be a text, so that calls with "
                "the same key stand in one line. Use key=lambda …: str(…)"
            )
        return check_key(key), priority


class WorkflowDefinition(Definition):
    """A workflow, its version, and a hash of what it says."""

    def __init__(
        self, function: Callable[..., Any], *, name: str | None = None, version: int | str = 1
    ) -> None:
        super().__init__(function, name=name)
        if any(character in self.name for character in "{}~"):
            # It becomes part of the ids of its runs when it is somebody's child.
            raise WorkflowMisuse(
                f"workflow name {self.name!r} contains '{{', '}}' or '~': leave it out"
            )
        if not isinstance(version, int | str):
            raise InvalidValue(f"version={version!r}: use a number or a text")
        self.version = version

    @cached_property
    def hash(self) -> str:
        """A hash of the function's structure: layout, comments and decorators do not count."""
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(self.function))).body[0]
        except (OSError, TypeError, SyntaxError):
            code = getattr(self.function, "__code__", None)  # what is written in C has none
            return hashlib.sha256(b"" if code is None else code.co_code).hexdigest()[:16]
        if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
            tree.decorator_list = []
        return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]

    def main(
        self, execution: Execution, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """The coroutine that is the run."""
        if self.is_async:
            coroutine: Coroutine[Any, Any, Any] = self.function(*args, **kwargs)
            return coroutine
        return run_in_thread(execution, self.function, args, kwargs)
