"""Schedule, as a person writes it, and Plan, as it is stored."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from msgspec import Struct

from outlast.call import Call, check_call
from outlast.errors import InvalidId, InvalidValue
from outlast.model.ids import check_id
from outlast.model.queue_options import QueueOptions
from outlast.ports.codec import Codec
from outlast.schedules.timing import check_cron, firings, zone_of

Overlap = Literal["allow", "skip", "wait", "cancel"]
CatchUp = Literal["none", "last", "all"]
MOST_CAUGHT_UP = 1000
LONGEST_NAME = 200
LONGEST_JITTER = 86_400.0
YEAR = 366 * 86_400.0


class Plan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule does and when, in plain values."""

    name: str
    workflow: str
    input: str  # the recorded input of each run, as JSON text
    cron: str | None = None
    every: float = 0.0
    timezone: str = "UTC"
    jitter: float = 0.0
    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"
    catch_up_limit: int = 100
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    queue: QueueOptions | None = None

    @property
    def most(self) -> int:
        """How many firings that have come are made up at once."""
        return self.catch_up_limit if self.catch_up == "all" else 1


class Schedule:
    """Start a workflow by the clock: ``Schedule("nightly", report("Munich"), cron="0 2 * * *")``.

    Give `cron` (five fields, read in `timezone`) or `every` (seconds, or a timedelta; counted from
    `starts_at`, or so that an hour is on the hour).
    Each firing is put off by up to `jitter` seconds, never past the next one. It happens from
    `starts_at` to `ends_at`. Runs wait for their turn in `queue`, if it is given: a name, or an
    `QueueOptions` with key and priority.

    `overlap` says what happens if the run before is not over: ``skip`` this firing, ``allow`` both,
    let this one ``wait`` (one at a time), or ``cancel`` that run and begin when it has ended.
    `catch_up` says what to do about firings that were missed because no worker was there: the
    ``last`` one is made up, or ``all`` (of the last `catch_up_limit`), or ``none``.
    """

    def __init__(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        timezone: str = "UTC",
        jitter: float | timedelta = 0.0,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "last",
        catch_up_limit: int = 100,
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        queue: str | QueueOptions | None = None,
    ) -> None:
        self._call = check_call(call, "Schedule")
        if (cron is None) == (every is None):
            raise InvalidValue("a schedule needs one of cron=… and every=…")
        self.workflow = call.workflow
        zone_of(timezone)
        self._plan = Plan(
            name=check_schedule_name(name),
            workflow=self.workflow.name,
            input="{}",
            cron=None if cron is None else check_cron(cron),
            every=0.0 if every is None else _interval(every),
            timezone=timezone,
            jitter=_jitter(jitter),
            overlap=_one_of("overlap", overlap, get_args(Overlap)),
            catch_up=_one_of("catch_up", catch_up, get_args(CatchUp)),
            catch_up_limit=_limit(catch_up_limit),
            starts_at=_moment("starts_at", starts_at),
            ends_at=_moment("ends_at", ends_at),
            queue=_place(queue),
        )
        if starts_at is not None or ends_at is not None:
            self._fires_at_all()

    @property
    def name(self) -> str:
        """What the schedule is called."""
        return self._plan.name

    def plan(self, codec: Codec) -> Plan:
        """The schedule as it is stored."""
        signature = self.workflow.definition.signature
        recorded, _, _ = signature.encode_call(codec, self._call.args, self._call.kwargs)
        values = {field: getattr(self._plan, field) for field in self._plan.__struct_fields__}
        return Plan(**{**values, "input": bytes(recorded).decode()})

    def _fires_at_all(self) -> None:
        start = self._plan.starts_at or datetime.now(UTC)
        try:
            first = next(firings(self._plan, start - timedelta(microseconds=1)), None)
        except OverflowError:
            raise InvalidValue(
                f"schedule {self.name!r} never fires: starts_at={start.isoformat()} is out of this "
                "calendar"
            ) from None
        if first is None:
            raise InvalidValue(f"schedule {self.name!r} never fires: nothing is due before ends_at")


def check_schedule_name(name: str) -> str:
    """Return a name that a schedule may have: it stands in the ids of its runs."""
    check_id(name, "name of a schedule")
    if "@" in name or name == "schedule" or len(name) > LONGEST_NAME:
        raise InvalidId(
            f"a schedule cannot be called {name[:40]!r}: its runs are called name@time. Use up to "
            f"{LONGEST_NAME} characters, no @, and not just “schedule”"
        )
    return name


def _interval(every: Any) -> float:
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 1:
        raise InvalidValue(
            f"every={every!r} is not possible: use 1 second or more. For less, let one run loop "
            "with outlast.sleep()"
        )
    if seconds > 10 * YEAR or math.isinf(seconds):
        raise InvalidValue(f"every={every!r} is not possible: use up to ten years")
    return float(seconds)


def _jitter(jitter: Any) -> float:
    seconds = jitter.total_seconds() if isinstance(jitter, timedelta) else jitter
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidValue(f"jitter={jitter!r} is not possible: use seconds")
    if not 0 <= seconds <= LONGEST_JITTER:
        raise InvalidValue(f"jitter={jitter!r} is not possible: use 0 seconds up to a day")
    return float(seconds)


def _place(queue: Any) -> QueueOptions | None:
    if queue is None:
        return None
    if not isinstance(queue, str | QueueOptions):
        raise InvalidValue(f"queue={queue!r} is not possible: give its name, or an QueueOptions")
    place = QueueOptions(queue) if isinstance(queue, str) else queue
    if place.at is not None or place.delay:
        raise InvalidValue(
            "the place of a schedule's runs has `at` or `delay`: the schedule says when"
        )
    return place.resolved(datetime.now(UTC))


def _limit(limit: Any) -> int:
    if type(limit) is not int or not 1 <= limit <= MOST_CAUGHT_UP:
        raise InvalidValue(f"catch_up_limit={limit!r} is not possible: use 1 to {MOST_CAUGHT_UP}")
    return limit


def _moment(what: str, moment: Any) -> datetime | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidValue(f"{what}={moment!r} has no time zone: give it one, tzinfo=UTC say")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidValue(f"{what}={moment!r} is not possible: out of this calendar") from None


def _one_of(what: str, value: Any, possible: tuple[str, ...]) -> Any:
    if value not in possible:
        raise InvalidValue(f"{what}={value!r} is not possible: use {', '.join(possible)}")
    return value
