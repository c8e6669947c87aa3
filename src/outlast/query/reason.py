"""Reason: a sentence about a run, and the words of others in it."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Reason(Struct, frozen=True, kw_only=True):
    """What a run waits for. `text` has ``{}`` where the moments of `times` belong, in the words of
    whoever shows them; `commands` move it on."""

    text: str
    times: tuple[datetime, ...] = ()
    commands: tuple[str, ...] = ()


def one(text: str | None) -> str:
    """Foreign text in a sentence, quoted."""
    return escaped(repr(text or ""))


def escaped(text: str | None) -> str:
    """Foreign text whose braces do not stand for moments."""
    return (text or "").replace("{", "{{").replace("}", "}}")
