"""Moments and lengths of time as people say them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_STEPS = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)]


def length(seconds: float) -> str:
    """A length of time in two units at most: 3d 4h, 1.2s, 35ms."""
    if seconds < 0.0005:
        return "0s" if seconds <= 0 else "<1ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _STEPS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size}{unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts)


def ago(moment: datetime, now: datetime) -> str:
    """A moment as seen from now: `3m ago`, `in 2h`."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    told = length(abs(seconds)).split()[0] if abs(seconds) >= 10 else f"{abs(seconds):.0f}s"
    return f"{told} ago" if seconds > 0 else f"in {told}"


def iso(moment: datetime) -> str:
    """A moment in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def between(start: datetime | None, end: datetime | None) -> timedelta | None:
    """How long something took, if both are known."""
    return None if start is None or end is None else end - start
