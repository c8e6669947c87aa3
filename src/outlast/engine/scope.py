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

    __slots__ = ("_children", "_counts", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._children = 0
        self._counts: dict[str, int] = {}

    def child(self) -> Scope:
        """The scope of the next task that this one creates."""
        scope = Scope(f"{self.path}{self._children}/")
        self._children += 1
        return scope

    def key(self, name: str) -> str:
        """The key of the next operation called `name` here."""
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        return f"{self.path}{name}" if count == 1 else f"{self.path}{name}#{count}"


current_scope: ContextVar[Scope] = ContextVar("outlast_scope")
