"""What differs between two values of the model: the paths, readable, with both sides.

Tokens are compared by their pattern: each store has a counter of its own, but where one has the
same token twice the other must too, and where one grows so must the other. The same goes for ids
that a convenience makes up for each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import Raw, Struct

from outlast.errors import (
    Conflict,
    DuplicateEvent,
    Fenced,
    NotFound,
    OutlastError,
    RunClosed,
    RunExists,
)
from outlast.model.run import Status

# What of an error belongs to the contract, beside its type. Whom a fence names is the store's own.
SALIENT: dict[type[OutlastError], tuple[str, ...]] = {
    Conflict: ("run_id", "expected", "actual", "what"),
    DuplicateEvent: ("run_id", "event_id", "sequence"),
    NotFound: ("kind", "id"),
    RunClosed: ("run_id", "status"),
    RunExists: ("run_id", "uid"),
    Fenced: (),
}


PLAIN = frozenset({bool, int, float, str, datetime, type(None), Status})
RENAMED = ("token", "uid", "commit_id")
"""Fields whose values a store or a convenience may choose: compared by their pattern alone."""


class Pairing:
    """Which name of the right store stands for which of the left one."""

    def __init__(self) -> None:
        self._right_of: dict[tuple[str, object], object] = {("token", 0): 0}
        self._left_of: dict[tuple[str, object], object] = {("token", 0): 0}
        self._fresh: list[tuple[int, int]] = []
        self._top = (0, 0)

    def same(self, kind: str, left: object, right: object) -> bool:
        """Whether the two stand for each other; a pair seen first from now on does."""
        if (kind, left) not in self._right_of and (kind, right) not in self._left_of:
            self._right_of[kind, left], self._left_of[kind, right] = right, left
            if isinstance(left, int) and isinstance(right, int):
                self._fresh.append((left, right))
        return (
            self._right_of.get((kind, left)) == right and self._left_of.get((kind, right)) == left
        )

    def grown(self) -> bool:
        """Whether all tokens seen since the last call are greater than all before, if they are on
        the left: a token is greater than any that was given out earlier."""
        fresh, self._fresh = self._fresh, []
        left, right = self._top
        grown = all((a > left) == (b > right) for a, b in fresh)
        self._top = (max([left, *(a for a, _ in fresh)]), max([right, *(b for _, b in fresh)]))
        return grown


def differences(
    left: object, right: object, names: Pairing, *, times: bool = True, path: str = ""
) -> Iterator[str]:
    """The places in which two values differ. Without `times` all moments count as equal."""
    kind = type(left)
    if kind in PLAIN and kind is type(right):  # by far the most, so first
        if left != right and (times or kind is not datetime):
            yield f"{path or 'value'}: {left!r} != {right!r}"
    elif isinstance(left, Struct) and kind is type(right):
        for name in left.__struct_fields__:
            one, other = getattr(left, name), getattr(right, name)
            if name in RENAMED and one is not None and other is not None:
                if not names.same(name, one, other):
                    yield f"{path}.{name}: {one!r} and {other!r} do not stand for each other"
            else:
                yield from differences(one, other, names, times=times, path=f"{path}.{name}")
    elif isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted(left.keys() | right.keys(), key=repr):
            if key not in left or key not in right:
                yield f"{path}[{key!r}]: only {'right' if key in right else 'left'}"
            else:
                inner = f"{path}[{key!r}]"
                yield from differences(left[key], right[key], names, times=times, path=inner)
    elif (
        isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)) and kind is type(right)
    ):
        if len(left) != len(right):
            yield f"{path}: {len(left)} items != {len(right)} items: {left!r} != {right!r}"
        for index, (one, other) in enumerate(zip(left, right, strict=False)):
            yield from differences(one, other, names, times=times, path=f"{path}[{index}]")
    elif isinstance(left, OutlastError) or isinstance(right, OutlastError):
        yield from _errors(left, right, names, path or "value")
    elif isinstance(left, (Raw, bytes)) and isinstance(right, (Raw, bytes)):
        if bytes(left) != bytes(right):
            yield f"{path or 'value'}: {bytes(left)!r} != {bytes(right)!r}"
    elif left != right or not (kind is type(right) or _texts(left, right)):
        yield f"{path or 'value'}: {left!r} != {right!r}"


def _texts(left: object, right: object) -> bool:
    """Whether both are open text. `Event.type` is, even if a caller passes a member of an enum; a
    status is not: it comes back as one."""
    return (
        isinstance(left, str) and isinstance(right, str) and Status not in map(type, (left, right))
    )


def _errors(left: object, right: object, names: Pairing, path: str) -> Iterator[str]:
    if type(left) is not type(right):
        yield f"{path}: {left!r} != {right!r}"
        return
    for kind, salient in SALIENT.items():
        if isinstance(left, kind):
            for name in salient:
                one, other = getattr(left, name), getattr(right, name)
                if not names.same(name, one, other) if name in RENAMED else one != other:
                    yield f"{path}.{name}: {one!r} != {other!r}"
