"""Scope: where in a workflow something was asked for, independent of when.

Every task of a workflow has a scope of its own, named by its parent's scope and the order in which
the parent created it; an operation's key is its scope, its name and the how-manieth of that name it
is there. Two branches of a `gather` therefore never disturb each other's keys, whichever is
faster::

    charge          the first call of charge in the workflow itself
    charge#2        the second
    1/ship          the first call of ship in the second task that the workflow created
    1/0/ship#3      the third one in the first task that *that* task created
"""

from __future__ import annotations

from contextvars import ContextVar


class Scope:
    """One task's place in the tree of tasks, and what has been asked for there so far."""

    __slots__ = ("_children", "_counts", "outer", "path", "tasks_inside")

    def __init__(self, path: str = "", outer: Scope | None = None) -> None:
        self.path = path
        self.tasks_inside = 0
        """How many tasks that were made here, or further in, have not ended."""
        self.outer = outer
        self._children = 0
        self._counts: dict[str, int] = {}

    def child(self) -> Scope:
        """The scope of the next task that this one creates."""
        scope = Scope(f"{self.path}{self._children}/", self)
        self._children += 1
        return scope

    def count_task(self, change: int) -> None:
        """A task of this scope has begun, 1, or ended, -1: those around it know."""
        outer = self.outer
        while outer is not None:
            outer.tasks_inside += change
            outer = outer.outer

    def key(self, name: str) -> str:
        """The key of the next operation called `name` here."""
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        return f"{self.path}{name}" if count == 1 else f"{self.path}{name}#{count}"


current_scope: ContextVar[Scope] = ContextVar("outlast_scope")
