"""The text of an error as every store can hold it, and where in the user's code something happens.

Errors come from the user's code. Computing the text of one may raise, the text may have megabytes, or contain a lone
surrogate (from a file name that is not UTF-8). A step whose error could not be recorded would be retried for ever, so
these functions return a text for every error.
"""

from __future__ import annotations

import asyncio
import inspect
from dis import opname
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, TypeVar

from msgspec.structs import replace

from outlast.engine.definitions.retry import PROGRAMMING_ERRORS
from outlast.errors import OutlastError, RemoteTraceback
from outlast.model.payloads import ErrorDetails, chain_text

MAX_CHARACTERS = 10_000
"""Characters of an error text that are kept."""

MAX_AROUND = 1_000
"""What callers may add around it, such as a step's name, before it is cut again."""

MAX_FRAMES = 8
MAX_CHAIN = 12
"""Errors of a chain that are kept: the error itself, then its causes."""

NOT_THE_USERS = (str(Path(__file__).parents[2]), str(Path(asyncio.__file__).parents[1]), "<frozen")
"""Where outlast and the standard library are."""


def text_of(error: BaseException) -> str:
    """The text of an error, or the name of its class if the text is empty. The text of a group includes those of its
    errors."""
    text = _text(error)
    if isinstance(error, BaseExceptionGroup):
        text = f"{text}: {'; '.join(describe(inner) for inner in error.exceptions)}"
    return storable(text) or type(error).__name__


def describe(error: BaseException) -> str:
    """The name of an error's class, and its text."""
    return f"{type(error).__name__}: {text_of(error)}"


def storable(text: str) -> str:
    """A text that can be stored: of limited length and without lone surrogates."""
    if len(text) > MAX_CHARACTERS + MAX_AROUND:
        text = f"{text[:MAX_CHARACTERS]}… ({len(text):,} characters)"
    return text.encode(errors="backslashreplace").decode()


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - it is the user's class
        return f"(its text cannot be had: __str__ raised {type(broken).__name__})"


def shown(id: str) -> str:
    """An id for a log line: quoted if it contains a space or an unprintable character."""
    return id if id.isprintable() and " " not in id else repr(id)


# -- errors as data ---------------------------------------------------------------------------

E = TypeVar("E", bound=BaseException)


def details_of(error: BaseException) -> list[ErrorDetails]:
    """An error and what it was raised from, as data: the error itself first. Includes what was recorded of errors that
    come from another process, or from an earlier execution of this code."""
    return _chain(error, set())


def _chain(error: BaseException | None, seen: set[int], link: str = "") -> list[ErrorDetails]:
    found: list[ErrorDetails] = []
    while error is not None and id(error) not in seen and len(seen) < MAX_CHAIN:
        seen.add(id(error))
        recorded = getattr(error, "details", ()) if isinstance(error, OutlastError) else ()
        if recorded:
            return [*found, replace(recorded[0], link=link), *recorded[1 : MAX_CHAIN - len(seen)]]
        kind, text, frames = type(error).__name__, _cut(_text(error)), frames_of(error)
        found.append(ErrorDetails(type=kind, message=text, frames=frames, link=link))
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                found += _chain(member, seen, "member")
        if error.__cause__ is not None:
            error, link = error.__cause__, "cause"
        else:
            error, link = None if error.__suppress_context__ else error.__context__, "context"
    return found


def _cut(text: str) -> str:
    text = storable(text)
    return text if len(text) <= MAX_AROUND else f"{text[:MAX_AROUND]}…"


def with_place(error: E, details: list[ErrorDetails]) -> E:
    """An error whose ``__cause__`` shows where it comes from, as it was recorded."""
    if details:
        error.__cause__ = RemoteTraceback(chain_text(details), details)
    return error


# -- bugs -------------------------------------------------------------------------------------


def ends_in_bug(error: BaseException, kinds: tuple[type[Exception], ...] | None = None) -> bool:
    """Whether the error that ended workflow code parks its run: one of `kinds` or, by default, a programming error that
    the code did not raise on purpose. Errors of outlast never do, such as the failure of a step. Of a group one member
    is enough."""
    if isinstance(error, BaseExceptionGroup):
        return any(ends_in_bug(member, kinds) for member in error.exceptions)
    if isinstance(error, OutlastError) or getattr(error.__cause__, "raised_as", None) is error:
        return False  # or the exception that a step declares in `raises`
    if kinds is not None:
        return isinstance(error, kinds)
    return type(error) in PROGRAMMING_ERRORS and not _is_on_purpose(error)


def _is_on_purpose(error: BaseException) -> bool:
    """Whether the user's code has a ``raise`` for it. An ``assert`` is none."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return True  # it was never raised: a member of a group that the code has made
    code = traceback.tb_frame.f_code
    if location_of(code, traceback.tb_lineno) is None or isinstance(error, AssertionError):
        return False
    return opname[code.co_code[traceback.tb_lasti]] == "RAISE_VARARGS"


# -- source locations -------------------------------------------------------------------------


def location_of(code: CodeType, line: int | None) -> str | None:
    """A line of code as text; None if it is not the user's."""
    file = code.co_filename
    if file.startswith(NOT_THE_USERS) or "site-packages" in file:
        return None
    return f"{Path(file).name}:{line} in {code.co_name}"


def location_of_coroutine(awaited: Any) -> str | None:
    """The innermost line of the user's code at which a coroutine waits."""
    frame = frame_of_coroutine(awaited)
    return None if frame is None else location_of(frame.f_code, frame.f_lineno)


def frame_of_coroutine(awaited: Any) -> FrameType | None:
    """The innermost frame of the user's code in which a coroutine waits."""
    found = None
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None and location_of(frame.f_code, frame.f_lineno) is not None:
            found = frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return found


def at_caller() -> str:
    """`` at`` the innermost running line of the user's code, if there is one."""
    frame = inspect.currentframe()
    while frame is not None:
        location = location_of(frame.f_code, frame.f_lineno)
        if location is not None:
            return f" at {location}"
        frame = frame.f_back
    return ""


def at_error(error: BaseException) -> str:
    """`` at`` the innermost line of the user's code in the traceback of an error, if there is one."""
    found = frames_of(error)
    return f" at {found[-1]}" if found else ""


def frames_of(error: BaseException) -> list[str]:
    """The lines of the user's code in the traceback of an error: the innermost `MAX_FRAMES`, innermost last."""
    found = [location_of(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    return [location for location in found if location is not None][-MAX_FRAMES:]
