"""Two ledgers outside the store, which survive `kill -9`: what steps did, and what a client was told.

A line is one write at the end of a file, synced unless nobody cuts the power. All lives share the
files, so the order of lines is the order of time, whoever wrote them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

import outlast

L = TypeVar("L", bound="Effect | Told")


class Effect(msgspec.Struct, frozen=True, omit_defaults=True):
    """A body has begun, ended, failed as it was meant to, or was cancelled."""

    what: str
    life: int
    at: int  # nanoseconds, by default since 1970, to compare with events
    run_id: str
    uid: str
    key: str
    attempt: int
    label: str = ""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """The client was about to ask (starting, sending) or got an answer (the others)."""

    what: str  # starting, started, sending, sent, refused, answered, result, failed, cancelled
    life: int
    run_id: str
    number: int = 0
    value: object = None


class Ledger:
    """A file that lines are added to."""

    def __init__(
        self,
        path: Path,
        life: int,
        *,
        synced: bool = True,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.life = life
        self.now = now
        self._synced = synced
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(self, line: Effect | Told) -> None:
        """Add a line; it is there when this returns, whatever becomes of the process."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")
        if self._synced:
            os.fsync(self._file)


def read(path: Path, kind: type[L]) -> list[L]:
    """All whole lines. A last one that was cut off says nothing that anybody was told."""
    text = path.read_bytes() if path.exists() else b""
    return [msgspec.json.decode(line, type=kind) for line in text.split(b"\n")[:-1]]


_effects: Ledger | None = None


def keep_effects(ledger: Ledger) -> None:
    """From now on the steps of this process write here."""
    global _effects
    _effects = ledger


@contextmanager
def effect(label: str = "") -> Iterator[None]:
    """Around a body: it has begun; it has ended, failed or was cancelled. Killed in between, it says
    nothing."""
    _write("begun", label)
    try:
        yield
    except Exception:
        _write("failed", label)
        raise
    except BaseException:
        _write("cancelled", label)
        raise
    _write("ended", label)


def _write(what: str, label: str) -> None:
    assert _effects is not None, "keep_effects() comes first"
    info = outlast.step_info()
    now, life = _effects.now(), _effects.life
    _effects.write(Effect(what, life, now, info.run_id, info.uid, info.key, info.attempt, label))
