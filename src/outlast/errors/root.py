"""The root of the tree of errors."""

from __future__ import annotations


class OutlastError(Exception):
    """The root of the tree: ``except OutlastError`` catches all that outlast raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # Python would call the class with the message alone, and most need more: an error that
        # cannot be unpickled breaks the whole pool of processes that it is raised in.
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[OutlastError], args: tuple[object, ...], state: dict[str, object]) -> object:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
