"""The machine that is measured on: what it is, how busy it is, and the memory of this process."""

from __future__ import annotations

import os
import platform
import resource
import threading
from datetime import UTC, datetime
from pathlib import Path

LOOK = 1.0
"""Seconds over which it is looked how busy the cores are."""

STAT = Path("/proc/stat")
IDLE = slice(3, 5)
"""Of the figures of a core: doing nothing, and waiting for the disk."""


def load() -> str:
    """How busy the cores are now, while nothing is measured: what others take. Where the system does
    not tell, how many processes have wanted a core in the last minute."""
    cores = f"{os.cpu_count()} cores"
    if not STAT.exists():
        return f"{os.getloadavg()[0]:.1f} on {cores}"
    before = _ticks()
    threading.Event().wait(LOOK)
    total, idle = (after - then for after, then in zip(_ticks(), before, strict=True))
    return f"{100 * (1 - idle / max(total, 1)):.0f} % of {cores}"


def _ticks() -> tuple[int, int]:
    """Of all cores since the start: all, and those in which they had nothing to do."""
    ticks = [int(one) for one in STAT.read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]]
    return sum(ticks), sum(ticks[IDLE])


def describe() -> str:
    """What was measured on, and when."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    day = datetime.now(UTC).strftime("%d %B %Y").lstrip("0")
    return f"{day}, {os.cpu_count()} cores ({model}), Python {platform.python_version()}"


def resident() -> int:
    """Bytes of memory that this process has in use now."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
