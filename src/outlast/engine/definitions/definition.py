"""Definitions: the user's steps and workflows, each with its name, signature and options; and the hash of a worker's code."""

from __future__ import annotations

import ast
import hashlib
import inspect
import math
import sys
import textwrap
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from outlast.engine.definitions.raised import check_raises
from outlast.engine.definitions.retry import ONCE, Retry, is_number
from outlast.engine.definitions.signature import Signature
from outlast.engine.replay.sync_workflow import run_in_thread
from outlast.errors import InvalidValue, WorkflowMisuse
from outlast.model.ids import SCHEDULE_OF, check_name
from outlast.model.queue_policy import check_key, check_queue
from outlast.model.times import to_seconds

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution

PLAIN = (bool, int, float, str, bytes, type(None))


def check_function(function: Any) -> None:
    """Reject what cannot be a step or a workflow, and say how to write it."""
    if isinstance(getattr(function, "definition", None), Definition):
        raise WorkflowMisuse(
            f"{function.__name__} is a step or a workflow already: decorate the function once"
        )
    if isinstance(function, staticmethod | classmethod):
        raise WorkflowMisuse(
            f"{function.__func__.__qualname__}: put @staticmethod above the decorator of outlast, "
            "not below it; a class method cannot be used, because its class cannot be recorded"
        )
    if not callable(function) or isinstance(function, type) or not hasattr(function, "__name__"):
        raise WorkflowMisuse(
            f"{function!r} is not a function: decorate a `def`, and give options by name, as in "
            "@outlast.step(name='charge')"
        )
    code = getattr(function, "__code__", None)
    if code is not None and code.co_argcount and code.co_varnames[0] in ("self", "cls"):
        raise WorkflowMisuse(
            f"{function.__qualname__} is a method: its object would have to be recorded with every "
            "call. Use a function, or a @staticmethod, and pass it the data that it needs"
        )


def _name_of(function: Callable[..., Any]) -> str:
    if function.__name__ == "<lambda>":
        raise WorkflowMisuse(
            "a lambda has no name under which it can be recorded: use a `def`, or name=…"
        )
    return function.__name__


class Definition:
    """A user's function and the name under which it is recorded."""

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
    """A step and its options."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retry: Retry = ONCE,
        timeout: float | timedelta | None = None,
        at_most_once: bool = False,
        process: bool = False,
        queue: str | None = None,
        key: str | Callable[..., str] | None = None,
        priority: int | Callable[..., int] = 0,
        transactional: bool = False,
        raises: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        super().__init__(function, name=name)
        if "/" in self.name or "#" in self.name or ":" in self.name:
            raise WorkflowMisuse(f"step name {self.name!r} contains '/', '#' or ':': leave it out")
        if not isinstance(retry, Retry):
            raise InvalidValue(f"retry={retry!r}: use retry=outlast.Retry(attempts=…)")
        timeout = None if timeout is None else to_seconds(timeout)
        if timeout is not None and not (is_number(timeout) and 0 < timeout < math.inf):
            raise InvalidValue(
                f"timeout={timeout!r}: a step needs a positive timeout in seconds, or None"
            )
        self.retry = retry
        self.raises = check_raises(raises)
        self.timeout = timeout
        self.at_most_once = at_most_once
        if process and module_of(function) is None:
            raise WorkflowMisuse(
                f"step {self.name!r} runs in a process of its own, which imports it by its name, and "
                f"{function.__qualname__} cannot be imported: define it at the top of a module, or of a script"
            )
        self.process = process
        if transactional and (process or queue is not None):
            raise WorkflowMisuse(
                f"step {self.name!r} is transactional, so it runs in the process that drives its run: omit process "
                "and queue"
            )
        self.transactional = transactional
        self.queue = None if queue is None else check_queue(queue)
        if queue is None and (key is not None or priority != 0):
            raise WorkflowMisuse(
                f"step {self.name!r} has a key or a priority but no queue: they order the tasks of a "
                "queue, so give it one: step(queue=…)"
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
        self.unknown_compensation: StepDefinition | None = None
        """The step that undoes a call whose outcome is unknown."""

    @property
    def is_undoable(self) -> bool:
        """Whether it has a compensation of either kind."""
        return self.compensation is not None or self.unknown_compensation is not None

    def queue_position(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int]:
        """The key and the priority of a call in its queue."""
        key: Any = ""
        if callable(self._key):
            key = self._key(*args, **kwargs)
        elif self._key is not None:
            key = self.signature.argument(self._key, args, kwargs)
        priority = self._priority(*args, **kwargs) if callable(self._priority) else self._priority
        if not isinstance(key, str):
            raise InvalidValue(
                f"the key of step {self.name!r} is {key!r}: it has to be a str, so that calls with the "
                "same key share a queue. Use key=lambda …: str(…)"
            )
        return check_key(key), priority


class WorkflowDefinition(Definition):
    """A workflow, its version, and a hash of its code."""

    def __init__(
        self, function: Callable[..., Any], *, name: str | None = None, version: int | str = 1
    ) -> None:
        super().__init__(function, name=name)
        if any(character in self.name for character in "{}~"):
            # It is part of the ids of its runs when they are children.
            raise WorkflowMisuse(
                f"workflow name {self.name!r} contains '{{', '}}' or '~': leave it out"
            )
        if not isinstance(version, int | str):
            raise InvalidValue(f"version={version!r}: use a number or a text")
        self.version = version
        self.asked_types: dict[bytes, Any] = {}
        """The types of answers that its runs in this process have asked people for, by their schema."""

    @cached_property
    def hash(self) -> str:
        """A hash of the function's syntax tree: layout, comments and decorators do not count."""
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
        """The coroutine of a run."""
        if self.is_async:
            coroutine: Coroutine[Any, Any, Any] = self.function(*args, **kwargs)
            return coroutine
        return run_in_thread(execution, self.function, args, kwargs)


def code_hash(workflows: Iterable[WorkflowDefinition]) -> str:
    """A hash of all workflows of a worker, by which workers with the same code recognise each other. It covers what a
    replay executes: the bytecode of each workflow, the plain constants that it reads from its module, and its file.
    Two processes with the same hash fail on the same run in the same way; a different hash costs one more try."""
    found = hashlib.sha256()
    for one in sorted(workflows, key=lambda each: each.name):
        if not one.name.startswith(SCHEDULE_OF):  # those are outlast's own
            function: Any = one.function
            code = getattr(function, "__code__", None)  # what is written in C has none
            values = getattr(function, "__globals__", {})
            text = "" if code is None else _text_of(code, values)
            found.update(
                f"{one.name} {one.version!r} {_file(function.__module__)} {text}\n".encode()
            )
    return found.hexdigest()[:16]


def _text_of(code: CodeType, values: dict[str, Any]) -> str:
    parts = [code.co_code.hex(), repr((code.co_argcount, code.co_kwonlyargcount, code.co_varnames))]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            parts.append(_text_of(constant, values))
        elif isinstance(constant, PLAIN):  # the order of a set differs between processes
            parts.append(repr(constant))
    for name in code.co_names:
        value = values.get(name)
        parts.append(f"{name}={value!r}" if isinstance(value, PLAIN) else name)
    return " ".join(parts)


@cache
def _file(module: str) -> str:
    """The hash of a module's file, as it was at the first call."""
    path = getattr(sys.modules.get(module), "__file__", None)
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
    except OSError:
        return ""


def module_of(function: Callable[..., Any]) -> str | None:
    """What another process imports to find a function: its module, or the path of the main program if that is a script.
    None if it cannot be imported: in a function, in a notebook, on the command line."""
    if "<" in function.__qualname__:  # of <locals>, or a <lambda>
        return None
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return str(spec.name)  # python -m NAME
    path = Path(getattr(main, "__file__", None) or "").absolute()
    return str(path) if path.is_file() else None
