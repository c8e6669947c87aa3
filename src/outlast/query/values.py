"""Durations, times and attribute values as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from outlast.model.run import Attribute

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LENGTH = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|[smhdw])")
_NUMBER = re.compile(r"[+-]?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,3})?")
_BEGINNING, _END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MOMENT = re.compile(r"(now|today|yesterday|)([+-]?)(.*)", re.DOTALL)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def length_of(text: str) -> timedelta | None:
    """A duration such as ``90s``, ``1.5h`` or ``1d12h``; None if the text is none."""
    found = list(_LENGTH.finditer(text))
    if not found or "".join(match[0] for match in found) != text:
        return None
    try:
        # The range of timedelta is not symmetric: the duration must be valid with both signs.
        return -timedelta(seconds=-sum(float(match[1]) * UNITS[match[2]] for match in found))
    except OverflowError:
        return None


def moment_of(text: str, now: datetime) -> datetime | None:
    """A moment: ISO 8601 (UTC unless it says otherwise), ``now``, ``today``, ``yesterday``, or one
    of these and a length, as in ``now-2h``; None if it is none."""
    word, sign, rest = _MOMENT.fullmatch(text.lower()).groups()  # type: ignore[union-attr]
    if not word:
        return _iso(text)
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    moment = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}[word]
    if not sign and not rest:
        return moment
    length = length_of(rest) if sign else None
    if length is None:
        return None
    return shifted(moment, length if sign == "+" else -length)


def shifted(moment: datetime, length: timedelta) -> datetime:
    """A moment shifted by `length`, clamped to the range of the calendar."""
    try:
        return moment + length
    except OverflowError:
        return _END if length > timedelta() else _BEGINNING


def is_day(text: str) -> bool:
    """Whether a moment stands for a whole day in a test of equality."""
    return bool(_DAY.fullmatch(text)) or text.lower() in ("today", "yesterday")


def attributes_like(text: str) -> list[Attribute]:
    """The values that an unquoted word may stand for: the text, and the number or boolean it spells."""
    values: list[Attribute] = [text]
    if text in ("true", "false"):
        values.append(text == "true")
    elif _NUMBER.fullmatch(text):
        number: int | float = float(text) if re.search(r"[.eE]", text) else int(text)
        try:
            rounded = float(number)
        except OverflowError:
            return [*values, number]
        if rounded not in (float("inf"), float("-inf")):
            values += [rounded, *([-rounded] if rounded == 0 else [])]
            if rounded.is_integer():
                values.append(int(number))
        elif isinstance(number, int):
            values.append(number)
    return values


def number_like(text: str) -> int | float | None:
    """The number that an unquoted word spells, or None."""
    numbers = [value for value in attributes_like(text) if type(value) in (int, float)]
    return numbers[-1] if numbers else None  # type: ignore[return-value]


def wild(pattern: str, text: str) -> bool:
    """Whether `text` matches `pattern`, in which ``*`` matches anything."""
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    if not text.startswith(first) or len(text) < len(first) + len(others[-1]):
        return False
    at, end = len(first), len(text) - len(others[-1])
    for part in others[:-1]:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return text.endswith(others[-1])


def _iso(text: str) -> datetime | None:
    if not re.match(r"\d{4}-\d\d", text):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
