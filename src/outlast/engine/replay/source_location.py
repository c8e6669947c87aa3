"""Places: where in the user's code something is, for people to read."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

NOT_THE_USERS = (str(Path(__file__).parents[1]), str(Path(asyncio.__file__).parents[1]), "<frozen")
"""Where outlast and the standard library are."""


MOST_FRAMES = 8


def place_of(code: CodeType, line: int | None) -> str | None:
    """A line of code; None if it is not the user's."""
    file = code.co_filename
    if file.startswith(NOT_THE_USERS) or "site-packages" in file:
        return None
    return f"{Path(file).name}:{line} in {code.co_name}"


def place_of_code(awaited: Any) -> str | None:
    """The innermost line of the user's at which a coroutine waits."""
    frame = frame_of_code(awaited)
    return None if frame is None else place_of(frame.f_code, frame.f_lineno)


def frame_of_code(awaited: Any) -> FrameType | None:
    """The innermost frame of the user's in which a coroutine waits."""
    found = None
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None and place_of(frame.f_code, frame.f_lineno) is not None:
            found = frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return found


def at_caller() -> str:
    """`` at`` the innermost line of the user's that is running now, if there is one."""
    frame = inspect.currentframe()
    while frame is not None:
        place = place_of(frame.f_code, frame.f_lineno)
        if place is not None:
            return f" at {place}"
        frame = frame.f_back
    return ""


def at_error(error: BaseException) -> str:
    """`` at`` the innermost line of the user's that an error came through, if there is one."""
    found = frames_of(error)
    return f" at {found[-1]}" if found else ""


def frames_of(error: BaseException) -> list[str]:
    """The lines of the user's that an error came through, the innermost last, and no more of them
    than anybody reads."""
    places = [place_of(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    return [place for place in places if place is not None][-MOST_FRAMES:]
