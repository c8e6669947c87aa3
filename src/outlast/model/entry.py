"""Entry: an audit line that says who did what step, how long it took, with what input and output."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from outlast.model.ids import new_id
from outlast.model.times import EPOCH


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One audit line of a run. `action` is completed, halted, failed, or a word of your own."""

    run_id: str
    step_id: str
    action: str
    id: str = msgspec.field(default_factory=new_id)
    step_type: str = ""
    duration_ms: int | None = None
    input: Raw | None = None
    output: Raw | None = None
    error: str | None = None
    timestamp: datetime = EPOCH
