"""The machine that is measured on."""

from __future__ import annotations

import os
import resource
from pathlib import Path


def load() -> str:
    """How many processes want a core, over 1, 5 and 15 minutes."""
    return ", ".join(f"{load:.1f}" for load in os.getloadavg()) + f" on {os.cpu_count()} cores"


def resident() -> int:
    """Bytes of memory that this process has in use now."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
