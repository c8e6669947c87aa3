"""Moments and lengths of time as people say them.

Users' data on a terminal: what could move the cursor, change colours, or turn text around is
shown as an escape instead (S11). JSON stays JSON: there the escape is JSON's own.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

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


# C0, DEL and C1; marks that turn the direction of text; what is invisible or breaks a line; tags;
# lone surrogates, which no terminal can be sent.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def neutral(text: str) -> str:
    """Text that is one line and does nothing but be read."""
    return _UNSAFE.sub(_escape, text)


def neutral_lines(text: str) -> str:
    """The same, with lines and indentation as they are."""
    return "\n".join(neutral(line.replace("\t", "    ")) for line in text.splitlines())


def to_json(value: Any) -> str:
    """A value as one line of JSON in which nothing is unsafe."""
    return _UNSAFE.sub(_json_escape, msgspec.json.encode(value).decode())


def width_of(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def shortened(text: str, width: int) -> str:
    """Text in at most so many columns; what is left out is an ellipsis."""
    if width_of(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += width_of(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…" if width > 0 else ""


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    short = _SHORT.get(match[0])
    if short is not None:
        return short
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def _json_escape(match: re.Match[str]) -> str:
    encoded = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{encoded[at : at + 4]}" for at in range(0, len(encoded), 4))
