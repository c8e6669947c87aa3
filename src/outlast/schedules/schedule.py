"""`Schedule` as the user declares it, and `ScheduleSpec` as it is stored."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from msgspec import Struct

from outlast._public import public
from outlast.call import Call, check_call
from outlast.errors import InvalidId, InvalidValue
from outlast.model.ids import check_id
from outlast.model.queue_policy import QueueOptions
from outlast.ports.codec import Codec
from outlast.schedules.timing import check_cron, firings, zone_of

Overlap = Literal["allow", "skip", "wait", "cancel"]
CatchUp = Literal["none", "last", "all"]
MAX_CATCH_UP = 1000
MAX_NAME_LENGTH = 200
MAX_JITTER_S = 86_400.0
YEAR_S = 366 * 86_400.0


class ScheduleSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule starts and when, as plain values. It is recorded in the run of the schedule."""

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
    def max_made_up(self) -> int:
        """How many missed firings are made up at once."""
        return self.catch_up_limit if self.catch_up == "all" else 1


@public
class Schedule:
    """Start a workflow by the clock: ``Schedule("nightly", report("Munich"), cron="0 2 * * *")``.

    Give `cron` (five fields, read in `timezone`) or `every` (seconds, or a timedelta; counted from
    `starts_at`, or so that an hour is on the hour).
    Each firing is delayed by up to `jitter` seconds, never past the next one. Firings happen from
    `starts_at` to `ends_at`. With `queue`, a name or `QueueOptions` with key and priority, the runs are
    queued.

    `overlap` says what happens if the previous run has not ended: ``skip`` this firing, ``allow`` both,
    let this one ``wait`` (one at a time), or ``cancel`` the previous run and start when it has ended.
    `catch_up` says which firings are made up that were missed while no worker ran: the ``last`` one,
    ``all`` (of the last `catch_up_limit`), or ``none``.
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
            raise InvalidValue("a schedule needs either cron=… or every=…")
        self.workflow = call.workflow
        zone_of(timezone)
        self._spec = ScheduleSpec(
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
            queue=_queue_options(queue),
        )
        if starts_at is not None or ends_at is not None:
            self._check_fires()

    @property
    def name(self) -> str:
        """The name of the schedule."""
        return self._spec.name

    def spec(self, codec: Codec) -> ScheduleSpec:
        """The schedule as it is stored."""
        signature = self.workflow.definition.signature
        recorded, _, _ = signature.encode_call(codec, self._call.args, self._call.kwargs)
        values = {field: getattr(self._spec, field) for field in self._spec.__struct_fields__}
        return ScheduleSpec(**{**values, "input": bytes(recorded).decode()})

    def _check_fires(self) -> None:
        start = self._spec.starts_at or datetime.now(UTC)
        try:
            first = next(firings(self._spec, start - timedelta(microseconds=1)), None)
        except OverflowError:
            raise InvalidValue(
                f"schedule {self.name!r} never fires: starts_at={start.isoformat()} is beyond the "
                "last date that Python can represent"
            ) from None
        if first is None:
            raise InvalidValue(
                f"schedule {self.name!r} never fires: its first firing is after ends_at"
            )


def check_schedule_name(name: str) -> str:
    """Return the name if it is valid: it is part of the ids of the schedule's runs."""
    check_id(name, "name of a schedule")
    if "@" in name or name == "schedule" or len(name) > MAX_NAME_LENGTH:
        raise InvalidId(
            f"invalid schedule name {name[:40]!r}: its runs get ids name@time. Use up to "
            f"{MAX_NAME_LENGTH} characters without @, other than “schedule”"
        )
    return name


def _interval(every: Any) -> float:
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 1:
        raise InvalidValue(
            f"every must be at least 1 second (got {every!r}). For shorter intervals, loop in one run "
            "with outlast.sleep()"
        )
    if seconds > 10 * YEAR_S or math.isinf(seconds):
        raise InvalidValue(f"every must be at most ten years (got {every!r})")
    return float(seconds)


def _jitter(jitter: Any) -> float:
    seconds = jitter.total_seconds() if isinstance(jitter, timedelta) else jitter
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidValue(f"jitter must be a number of seconds or a timedelta (got {jitter!r})")
    if not 0 <= seconds <= MAX_JITTER_S:
        raise InvalidValue(f"jitter must be between 0 seconds and a day (got {jitter!r})")
    return float(seconds)


def _queue_options(queue: Any) -> QueueOptions | None:
    if queue is None:
        return None
    if not isinstance(queue, str | QueueOptions):
        raise InvalidValue(f"queue must be a name or QueueOptions (got {queue!r})")
    options = QueueOptions(queue) if isinstance(queue, str) else queue
    if options.at is not None or options.delay:
        raise InvalidValue(
            "the queue options of a schedule cannot have `at` or `delay`: the schedule sets the time"
        )
    return options.resolved(datetime.now(UTC))


def _limit(limit: Any) -> int:
    if type(limit) is not int or not 1 <= limit <= MAX_CATCH_UP:
        raise InvalidValue(f"catch_up_limit must be 1 to {MAX_CATCH_UP} (got {limit!r})")
    return limit


def _moment(what: str, moment: Any) -> datetime | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidValue(
            f"{what} must be a datetime with a time zone, such as tzinfo=UTC (got {moment!r})"
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidValue(
            f"{what}={moment!r} is beyond the dates that Python can represent in UTC"
        ) from None


def _one_of(what: str, value: Any, possible: tuple[str, ...]) -> Any:
    if value not in possible:
        raise InvalidValue(f"{what} must be one of {', '.join(possible)} (got {value!r})")
    return value
