"""What each process of a campaign writes down, in files outside the store that survive it.

All times are of the monotonic clock, which all processes of a machine share and nobody can set.

::

    told      what the client asked and was told            tests.campaigns.engine_kills.ledgers
    effects   what bodies did, begun and ended               "
    ops       every commit, send and claim, with its answer  OpLog, one file per process
    stalls    when a process could not do anything           Pulse
    faults    what was done to whom                          the nemesis, in memory
"""

from __future__ import annotations

import asyncio
import os

# Only what this campaign has just written itself is read so, and nobody else does.
import pickle  # noqa: TID251
import time
from pathlib import Path

import msgspec

from outlast.testkit.checker import Log, Op

FRAME = 4
BEAT = 0.05
STALL = 0.4
"""Seconds without a beat that count as a stall."""


class OpLog(Log):
    """A log that is a file. An answer is in it before anybody can act upon it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ops = _Appending(path)

    def tick(self) -> int:
        return time.monotonic_ns()


class _Appending(list[Op]):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def append(self, op: Op) -> None:
        if isinstance(op.result, BaseException):  # not all of them can be put into a file
            op = msgspec.structs.replace(op, result=None)
        data = pickle.dumps(op, protocol=pickle.HIGHEST_PROTOCOL)
        os.write(self._file, len(data).to_bytes(FRAME, "big") + data)


def read_ops(folder: Path) -> list[Op]:
    """What all processes asked of the store, in the order of the answers. The last line of one that
    was killed may be cut off: nobody has acted upon it."""
    ops: list[Op] = []
    for path in folder.glob("*.ops"):
        data, place = path.read_bytes(), 0
        while place + FRAME <= len(data):
            size = int.from_bytes(data[place : place + FRAME], "big")
            line = data[place + FRAME : place + FRAME + size]
            if len(line) < size:
                break
            ops.append(pickle.loads(line))
            place += FRAME + size
    return sorted(ops, key=lambda op: op.ended)


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that was done to a life, or to all of them, from when to when."""

    what: str
    life: int | None
    begun: int
    ended: int


class Pulse:
    """Notes when the loop of this process stood still: it was stopped, starved, or gripped."""

    def __init__(self, path: Path, life: int) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._life = life

    async def beat(self) -> None:
        """For ever."""
        last = time.monotonic_ns()
        while True:
            await asyncio.sleep(BEAT)
            now = time.monotonic_ns()
            if now - last > STALL * 1e9:
                stall = Fault("stall", self._life, last, now)
                os.write(self._file, msgspec.json.encode(stall) + b"\n")
            last = now


def read_stalls(path: Path) -> list[Fault]:
    """All stalls that processes have noticed of themselves."""
    text = path.read_bytes() if path.exists() else b""
    return [msgspec.json.decode(line, type=Fault) for line in text.split(b"\n")[:-1]]
