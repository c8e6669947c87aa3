"""What an error says, as text that every store can hold.

Errors come from anybody's code. The text of one may raise itself, be megabytes long, or hold half of
a surrogate pair (each file name that is not UTF-8 does). Who could not record an error would try
its step again for ever, so these functions give a text for every error.
"""

from __future__ import annotations

LONGEST = 10_000
"""Characters of an error that are kept: more than anybody reads."""

AROUND = 1_000
"""What others may put around it, a step's name for instance, before it is cut again."""


def text_of(error: BaseException) -> str:
    """What an error says, or the name of its class where it says nothing. That of a group says what
    its errors say, too."""
    text = _said(error)
    if isinstance(error, BaseExceptionGroup):
        text = f"{text}: {'; '.join(told(inner) for inner in error.exceptions)}"
    return storable(text) or type(error).__name__


def told(error: BaseException) -> str:
    """The name of an error's class, and what it says."""
    return f"{type(error).__name__}: {text_of(error)}"


def storable(text: str) -> str:
    """A text as it can be stored: no lone surrogates, and not without end."""
    if len(text) > LONGEST + AROUND:
        text = f"{text[:LONGEST]}… ({len(text):,} characters)"
    return text.encode(errors="backslashreplace").decode()


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - it is the user's class
        return f"(its text cannot be had: __str__ raised {type(broken).__name__})"
