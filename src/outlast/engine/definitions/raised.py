"""The exceptions of a step that its workflow can catch by their own class: `step(raises=…)`.

Recorded are the name of the declared class and the exception's data: its `args` and attributes, encoded like any value.
The class comes from the declaration in the running code. A stored name is only compared with the names of declared
classes: it is never imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from outlast.engine.definitions.retry import name_of
from outlast.errors import InvalidValue, OutlastError, StepFailed
from outlast.ports.codec import Codec

Kinds = tuple[type[Exception], ...]


def check_raises(raises: object) -> Kinds:
    """The declared classes, as a tuple."""
    kinds = (raises,) if isinstance(raises, type) else raises
    if not isinstance(kinds, tuple) or not all(
        isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds
    ):
        raise InvalidValue(
            f"raises={raises!r}: use a class of exceptions or a tuple of them, as raises=(PaymentDeclined,)"
        )
    return kinds


def declared_kind(raises: Kinds, error: BaseException) -> type[Exception] | None:
    """The declared class that an error is an instance of, the most derived one. An error from another process has only
    the names of its classes."""
    elsewhere: Sequence[str] = getattr(error, "kinds", ())
    names = elsewhere or [name_of(kind) for kind in type(error).__mro__]
    by_name = {name_of(kind): kind for kind in raises}
    return next((by_name[name] for name in names if name in by_name), None)


def kind_named(raises: Kinds, name: str) -> type[Exception] | None:
    """The declared class with that full name."""
    return next((kind for kind in raises if name_of(kind) == name), None)


def pack(codec: Codec, error: BaseException) -> list[Raw]:
    """The data of an exception: its args, and the attributes that can be encoded. Empty if its args cannot be."""
    given: tuple[Any, ...] = getattr(error, "raised_args", error.args)
    state: Mapping[str, Any] = getattr(error, "raised_state", vars(error))
    kept = {name: value for name, value in state.items() if _can_encode(codec, value)}
    try:
        return [codec.encode({"args": list(given), "state": kept}, where="exception")]
    except OutlastError:
        return []


def _can_encode(codec: Codec, value: object) -> bool:
    try:
        codec.encode(value, where="attribute")
    except OutlastError:
        return False
    return True


def read(codec: Codec, data: Sequence[Raw]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The args and attributes that `pack` has written; None if there are none, or they cannot be read."""
    if not data:
        return None
    try:
        found = codec.decode(data[0], where="exception")
    except OutlastError:
        return None
    return tuple(found["args"]), dict(found["state"])


def unpack(codec: Codec, kind: type[Exception], data: Sequence[Raw], text: str) -> Exception:
    """The exception again. Its `__init__` is not called: it may take other arguments than its `args`."""
    args, state = read(codec, data) or ((text,), {})
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def step_failure(error: BaseException | None) -> BaseException | None:
    """The `StepFailed` of which `error` is the exception that the step declares in `raises`; else `error` itself."""
    cause = None if error is None else error.__cause__
    return cause if isinstance(cause, StepFailed) and cause.raised_as is error else error
