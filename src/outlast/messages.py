"""Messages that are declared once and typed at both ends: signals, updates, queries.

::

    approve = outlast.Signal("approve", Approval)

    await approve.wait(timeout=timedelta(days=3))        # in the workflow: an Approval
    await handle.signal(approve, Approval(by="ann"))     # outside: nothing else is sent

The sender's value is checked against the declared type before it is written, and the workflow checks it again: a
message that was sent by name, or by other code, and does not fit is rejected, and the workflow waits on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from outlast._public import public
from outlast.model.ids import check_name

if TYPE_CHECKING:
    from typing_extensions import TypeForm  # of a type checker: `int | None` as well as a class

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")


@public
class Signal(Generic[T]):
    """A signal by name, with the type of its value: ``Signal("approve", Approval)``."""

    @overload
    def __init__(self: Signal[None], name: str) -> None: ...
    @overload
    def __init__(self, name: str, type: TypeForm[T]) -> None: ...
    def __init__(self, name: str, type: Any = None) -> None:
        self.name = check_name(name, "signal name")
        self.type: Any = type

    def wait(self, *, timeout: timedelta | float | None = None) -> Coroutine[Any, Any, T]:
        """In a workflow: wait for the signal, as `wait_for_signal` does."""
        from outlast import context  # loaded by workflow code alone: a client does without it

        waiting: Coroutine[Any, Any, T] = context.wait_for_signal(
            self.name, self.type, timeout=timeout
        )
        return waiting

    def __repr__(self) -> str:
        return f"Signal({self.name!r}, {self.type!r})"


@public
class Update(Generic[T, R]):
    """An update by name, with the types of its argument and of its answer: ``Update("price", Decimal, bool)``."""

    @overload
    def __init__(self, name: str, type: TypeForm[T], answer: TypeForm[R]) -> None: ...
    @overload
    def __init__(self: Update[V, Any], name: str, type: TypeForm[V]) -> None: ...
    def __init__(self, name: str, type: Any, answer: Any = Any) -> None:
        self.name = check_name(name, "update name")
        self.type: Any = type
        self.answer: Any = answer

    def on(self, handler: Callable[[T], R | Awaitable[R]]) -> Callable[[T], R | Awaitable[R]]:
        """In a workflow: declare what answers the update, as `on_update` does."""
        from outlast import context  # loaded by workflow code alone: a client does without it

        context.on_update(name=self.name)(handler)
        context.the_run("on_update").updates.on(self.name, handler, (self.type, self.answer))
        return handler

    def __repr__(self) -> str:
        return f"Update({self.name!r}, {self.type!r}, {self.answer!r})"


@public
class Query(Generic[T]):
    """A published value by name, with its type: ``Query("progress", int)``."""

    def __init__(self, name: str, type: TypeForm[T]) -> None:
        self.name = check_name(name, "name of a published value")
        self.type: Any = type

    def publish(self, value: T) -> None:
        """In a workflow: show the value to readers, from the next commit on."""
        from outlast import context  # loaded by workflow code alone: a client does without it

        run = context.the_run("publish")
        where = f"published {self.name!r}"
        run.pending.published[self.name] = run.codec.encode(value, self.type, where=where)

    def __repr__(self) -> str:
        return f"Query({self.name!r}, {self.type!r})"
