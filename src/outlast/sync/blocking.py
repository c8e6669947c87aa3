"""What the generated classes of `outlast.sync` have in common: an async object, and a loop in a thread that runs its methods.

::

    app.start(order("Momo"))       sync.App, in any thread
      └─ self._call(coroutine)     BackgroundLoop.call: waits for the answer
           └─ App.start(…)         outlast.App, on the loop of that thread

`tools/sync_api.py` writes the classes; docs/contributing/recipes.md says how.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from outlast.call import workflow_here
from outlast.engine.replay.sync_workflow import current_sync_workflow
from outlast.errors import Closed, InvalidValue, WorkflowMisuse
from outlast.worker.background_loop import BackgroundLoop

A = TypeVar("A")
T = TypeVar("T")


class RunBlocking(Protocol):
    """Runs a coroutine to its end, and returns or raises its outcome."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """Its result."""
        ...


class Twin(Generic[A]):
    """The synchronous twin of an async object: each method runs where the async object lives."""

    _twins: ClassVar[dict[type, type[Twin[Any]]]] = {}
    """The twin of each async class."""

    def __init_subclass__(cls, *, twin_of: type | None = None) -> None:
        super().__init_subclass__()
        if twin_of is not None:
            Twin._twins[twin_of] = cls

    def __init__(self, call: RunBlocking, of: A) -> None:
        self._call = call
        self._async = of

    def __repr__(self) -> str:
        return repr(self._async)

    @classmethod
    def around(cls, call: RunBlocking, of: A) -> Self:
        """The twin of an object that exists."""
        twin = cls.__new__(cls)
        Twin.__init__(twin, call, of)
        return twin

    def _here(self, function: Callable[[], T]) -> T:
        """Call a function that does not wait, on the loop: the async object belongs to it."""

        async def called() -> T:
            return function()

        return self._call(called())

    def _twin(self, value: Any) -> Any:
        """What a method has returned, with the twins of async objects."""
        if isinstance(value, list):
            return [self._twin(one) for one in value]
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(self._twin(one) for one in value)
        if isinstance(value, dict):
            return {key: self._twin(one) for key, one in value.items()}
        for known in type(value).__mro__:
            if known in self._twins:
                return self._twins[known].around(self._call, value)
        return value


class OpenedTwin(Twin[A]):
    """The twin of an app or a client: between `open` and `close` it has a loop in a background thread. Any thread may
    use it."""

    _make: Callable[[], A] | None = None  # None in the client of an app, which opens and closes it
    _background: BackgroundLoop | None = None

    def __init__(self, make: Callable[..., A], *args: Any, **options: Any) -> None:
        self._make = partial(make, *args, **options)
        super().__init__(self._run, self._make())
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def to_async(self) -> A:
        """The async object, for a program that has a loop. Open it there, and not here."""
        return self._async

    def __enter__(self) -> Self:
        if self._is_open:
            raise InvalidValue(
                "this app is open already: the end of this block would close it for the code that has opened "
                "it. Use it as it is"
            )
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    @property
    def _is_open(self) -> bool:
        return self._background is not None and self._background.is_here

    def _open(self) -> None:
        if self._make is None:
            return
        with self._lock:
            if self._is_open:
                return
            if self._pid != os.getpid():
                # Made before a fork: each process has to have a name of its own as the owner of runs.
                self._async, self._pid = self._make(), os.getpid()
            self._background = BackgroundLoop()
            opened: Any = self._async
            try:
                self._call(opened.open())
            except BaseException:
                self._stop()
                raise

    def _close(self) -> None:
        if self._make is None:
            return
        with self._lock:
            closed: Any = self._async
            try:
                if self._is_open:
                    self._call(closed.close())
            finally:
                self._stop()

    def _stop(self) -> None:
        background, self._background = self._background, None
        if background is not None:
            background.stop()

    def _here(self, function: Callable[[], T]) -> T:
        return function() if self._make and self._background is None else super()._here(function)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        background = self._background
        if background is not None and workflow_here() is None:
            return background.call(work)
        work.close()
        if workflow_here() is not None:
            raise WorkflowMisuse(
                "workflow code called its app: what that does would be done again in every replay. "
                "Use outlast.sync.child(order(…)) for another run, or put the call into a step"
            )
        name = type(self).__name__
        raise Closed(f"it is not open: use `with outlast.sync.{name}(…) as {name.lower()}:`")


def iterate(
    call: RunBlocking, found: AsyncIterable[T], wrap: Callable[[T], Any] | None = None
) -> Iterator[Any]:
    """What an async iterator gives, one by one. An iterator that is left early is closed by its loop."""

    items = aiter(found)

    async def step() -> tuple[T] | None:
        async for one in items:
            return (one,)
        return None

    while (item := call(step())) is not None:
        yield item[0] if wrap is None else wrap(item[0])


@contextmanager
def entered(
    call: RunBlocking, found: AbstractAsyncContextManager[T], wrap: Callable[[T], Any] | None = None
) -> Iterator[Any]:
    """What an async context manager gives, for a block."""
    value = call(found.__aenter__())
    try:
        yield value if wrap is None else wrap(value)
    except BaseException as error:
        if not call(found.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        call(found.__aexit__(None, None, None))


def taken_here(items: Any) -> Any:
    """What a generator gives, taken by the calling thread: it may use what belongs to this thread. Other values
    as they are."""
    return list(items) if isinstance(items, Iterator) else items


def run_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own, in a thread: also if the calling thread has a loop that runs."""
    if workflow_here() is not None:
        work.close()
        raise WorkflowMisuse(
            "workflow code cannot call this: each replay would do it again. Put the call into a step"
        )
    background = BackgroundLoop()
    try:
        return background.call(work)
    finally:
        background.stop()


def check_plain(name: str) -> None:
    """Refuse a call outside of plain `def` workflows."""
    if current_sync_workflow() is None:
        raise WorkflowMisuse(
            f"outlast.sync.{name}() works in a plain `def` workflow: in an `async def` one use "
            f"`await outlast.{name}(…)`"
        )
