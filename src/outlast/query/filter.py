"""Filter: a parsed query as a tree; each node says whether a run matches. At the end of the module, the parsers
of durations, times and attribute values as users write them.

A run matches or does not. A missing value (no error, no end, no such attribute) equals nothing and is
neither less nor greater than anything; only ``!=`` and ``not`` are true of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from msgspec import Struct

from outlast.model.run import TERMINAL, Attribute, Run, Status

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LENGTH = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|[smhdw])")
_NUMBER = re.compile(r"[+-]?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,3})?")
_BEGINNING, _END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MOMENT = re.compile(r"(now|today|yesterday|)([+-]?)(.*)", re.DOTALL)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")

TEXTS = ("id", "workflow", "parent", "queue", "error", "step", "owner", "wait")
TIMES = ("created", "updated", "ended")
KIND, SCHEDULE = "outlast.kind", "schedule"
"""The attribute that marks the runs of schedules, and its value."""
FIELDS = ("status", *TEXTS, *TIMES, "age")
"""The fields, besides `attr.NAME`."""

GROUPS = {"open": frozenset(set(Status) - TERMINAL), "ended": TERMINAL}
ORDER: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_TICK = timedelta(microseconds=1)
_IN_RECORD = {
    "step": "current_step",
    "wait": "wait_kind",
    "created": "created_at",
    "updated": "updated_at",
    "ended": "ended_at",
}


class Word(NamedTuple):
    """A value as written; a quoted one is taken literally."""

    text: str
    quoted: bool = False


class Node(Struct, frozen=True):
    """A node of the tree."""

    def matches(self, run: Run, now: datetime) -> bool:
        """Whether a run matches at a time."""
        raise NotImplementedError


class Every(Node, frozen=True):
    """All parts match; true if there are none."""

    parts: tuple[Node, ...]

    def matches(self, run: Run, now: datetime) -> bool:
        return all(part.matches(run, now) for part in self.parts)


class Either(Node, frozen=True):
    """At least one part matches."""

    parts: tuple[Node, ...]

    def matches(self, run: Run, now: datetime) -> bool:
        return any(part.matches(run, now) for part in self.parts)


class Not(Node, frozen=True):
    """The part does not match."""

    part: Node

    def matches(self, run: Run, now: datetime) -> bool:
        return not self.part.matches(run, now)


class Test(Node, frozen=True):
    """A field, a comparison (`=`, `~`, `<`, `<=`, `>`, `>=`) and a value. The parser has checked that they fit."""

    field: str
    op: str
    word: Word

    @property
    def attribute(self) -> str | None:
        """The name of the attribute in this test, if it tests one."""
        return self.field[5:] if self.field.startswith("attr.") else None

    @property
    def statuses(self) -> frozenset[Status]:
        """The statuses that a test of the status allows."""
        return GROUPS.get(self.word.text.lower()) or frozenset({Status.parse(self.word.text)})

    @property
    def is_pattern(self) -> bool:
        """Whether the value contains a ``*`` wildcard."""
        return not self.word.quoted and "*" in self.word.text

    def span(self, now: datetime) -> tuple[datetime | None, datetime | None]:
        """For `created`, `age` and `updated`: from when (this moment included) until when (it excluded)."""
        if self.field == "age":
            moment = shifted(now, -self._length)
            op = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[self.op]
        else:
            moment, op = self._moment(now), self.op
        if op == "=":
            return moment, self._end(moment)
        if op in (">", ">="):
            return (moment if op == ">=" else shifted(moment, _TICK)), None
        return None, (moment if op == "<" else _later(moment, _TICK))

    def matches(self, run: Run, now: datetime) -> bool:
        if self.field == "status":
            return run.status in self.statuses
        if self.attribute is not None:
            return self._attribute_matches(run.attributes.get(self.attribute))
        if self.field == "age":
            return ORDER[self.op](now - run.created_at, self._length)
        value = getattr(run, _IN_RECORD.get(self.field, self.field))
        if self.field in TIMES:
            return value is not None and self._time_matches(value, now)
        return self._text_matches(value or "")

    def _text_matches(self, text: str) -> bool:
        wanted = self.word.text
        if self.op == "~":
            return wanted.casefold() in text.casefold()
        return wild(wanted, text) if self.is_pattern else text == wanted

    def _time_matches(self, value: datetime, now: datetime) -> bool:
        moment = self._moment(now)
        if self.op != "=":
            return ORDER[self.op](value, moment)
        end = self._end(moment)
        return moment <= value and (end is None or value < end)

    def _attribute_matches(self, value: object) -> bool:
        if value is None:
            return False
        if self.op == "~" or self.is_pattern:
            return self._text_matches(_as_text(value))
        if self.op == "=":
            likes = [self.word.text] if self.word.quoted else attributes_like(self.word.text)
            return any(_alike(value, like) for like in likes)
        # Numbers are compared with numbers, and text with text.
        number = None if self.word.quoted else number_like(self.word.text)
        if isinstance(value, str):
            return number is None and ORDER[self.op](value, self.word.text)
        if isinstance(value, bool) or number is None:
            return False
        return ORDER[self.op](value, number)

    def _end(self, moment: datetime) -> datetime | None:
        """The end of a moment, or of the day that it stands for; None is never."""
        return _later(moment, timedelta(days=1) if is_day(self.word.text) else _TICK)

    def _moment(self, now: datetime) -> datetime:
        moment = moment_of(self.word.text, now)
        assert moment is not None, "the parser has read it"
        return moment

    @property
    def _length(self) -> timedelta:
        length = length_of(self.word.text)
        assert length is not None, "the parser has read it"
        return length


class Filter(Struct, frozen=True):
    """A query as text and as a tree."""

    text: str
    node: Node

    def matches(self, run: Run, now: datetime) -> bool:
        """Whether a run matches at a time."""
        return self.node.matches(run, now)

    def without_schedules(self) -> Filter:
        """The same query without the runs of schedules, unless it names them: by an id
        (``id:schedule@nightly``), by a workflow, or by ``attr.outlast.kind:schedule``."""
        if _asks_for_schedules(self.node):
            return self
        of_schedule = Test(f"attr.{KIND}", "=", Word(SCHEDULE, quoted=True))
        return Filter(self.text, Every((self.node, Not(of_schedule))))


def _asks_for_schedules(node: Node) -> bool:
    if isinstance(node, Every | Either):
        return any(_asks_for_schedules(part) for part in node.parts)
    return (
        isinstance(node, Test)
        and node.field in ("id", "workflow", f"attr.{KIND}")
        and SCHEDULE in node.word.text
    )


def _later(moment: datetime, length: timedelta) -> datetime | None:
    """A moment later by `length`, or None if the calendar ends before it."""
    later = shifted(moment, length)
    return later if later - moment == length else None


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _alike(value: object, other: object) -> bool:
    # True == 1 in Python; in a filter they are different values.
    return isinstance(value, bool) is isinstance(other, bool) and value == other


# -- values as users write them --------------------------------------------------------------------


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
