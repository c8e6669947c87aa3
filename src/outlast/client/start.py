"""StartOne: how a run begins under an id that may be taken.

How a run begins that somebody else will run: by name, with arguments as JSON.

StartMany: how runs begin that nobody drives yet: by name, many at once, in a queue, debounced.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from outlast.client.client import Client
from outlast.client.handle import RunHandle
from outlast.client.moved_runs import unless_moved
from outlast.decorators import Workflow
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.replay.commit_builder import start_commit
from outlast.engine.replay.execution import current_execution
from outlast.engine.runner.admission import QUEUED, queued
from outlast.errors import (
    Busy,
    Conflict,
    Fenced,
    InvalidValue,
    NotFound,
    PayloadError,
    RunClosed,
    RunExists,
    Undecodable,
    WorkflowMisuse,
)
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.model.event_data import payload_of
from outlast.model.ids import SCHEDULE_OF, check_id, new_id
from outlast.model.payloads import WorkflowStarted
from outlast.model.query import RunQuery
from outlast.model.queue_options import STARTS, QueueOptions
from outlast.model.run import Attribute, Run, Status
from outlast.model.times import EPOCH, from_micros, to_micros
from outlast.model.validation import check_delay
from outlast.ports.codec import Codec

Begin = Callable[[str, Creation], Awaitable[object]]
"""Writes the beginning of a run, given its id; `RunExists` if that is taken."""


class StartOne(Client):
    """The id is the idempotency key."""

    async def _begin(
        self,
        definition: WorkflowDefinition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        begin: Begin,
        *,
        id: str | None,
        on_conflict: str,
    ) -> RunHandle[Any]:
        """Begin a run; when its id is taken, do what `on_conflict` says."""
        run_id = new_id() if id is None else check_id(id)
        creation = Creation.REPLACE if on_conflict == "replace" else Creation.NEW
        if creation is Creation.REPLACE:
            await unless_moved(self._store, run_id)  # what goes on elsewhere cannot be ended here
            # Its children are not the new run's: they are asked to stop, and its parent is told.
            with suppress(NotFound, RunClosed):
                await self.terminate(run_id, "replaced by a new start")
        try:
            await begin(run_id, creation)
        except RunExists:
            if on_conflict == "fail":
                raise
            await self._same_or_raise(definition, args, kwargs, run_id)
        return RunHandle(self, run_id)

    async def _same_or_raise(
        self,
        definition: WorkflowDefinition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run_id: str,
    ) -> None:
        run = await self.get(run_id)
        if run.workflow == definition.name:
            # Compared as values, not as text: a set has no order of its own.
            _, *given = definition.signature.encode_call(self._codec, args, kwargs)
            for input in await self._inputs(run):
                if given == [*definition.signature.decode_call(self._codec, input)]:
                    return
        raise RunExists(run_id, run.uid)

    async def _inputs(self, run: Run) -> list[Raw]:
        """What a run was started with: its input, and if it has continued as new, the first."""
        inputs = [] if run.input is None else [run.input]
        for event in await self._store.history(run.id, limit=1):
            started = payload_of(event)
            if isinstance(started, WorkflowStarted) and started.origin is not None:
                inputs.append(started.origin)
        return inputs


def check_start(workflow: object, on_conflict: str) -> None:
    """Refuse what cannot be begun, or not from here."""
    if on_conflict not in ("attach", "fail", "replace"):
        raise InvalidValue(f"on_conflict={on_conflict!r}: use attach, fail or replace")
    if current_execution() is not None:
        raise WorkflowMisuse(
            "workflow code called app.start(): use `await outlast.child(…)`, which is recorded"
        )
    if not isinstance(workflow, Workflow):
        raise WorkflowMisuse(
            f"{workflow!r} is not a workflow: decorate the function with @outlast.workflow"
        )


def submission(
    workflows: Mapping[str, WorkflowDefinition],
    name: str,
    input: Raw,
    codec: Codec,
    run_id: str,
    attributes: dict[str, Attribute],
    place: QueueOptions | None = None,
) -> Commit:
    """The commit that begins a run, runnable now and nobody's, or in a queue."""
    workflow = workflows.get(name)
    if workflow is None:
        from difflib import get_close_matches  # when it is needed: every start would pay for it

        known = [own for own in sorted(workflows) if not own.startswith(SCHEDULE_OF)]
        near = get_close_matches(name, known, 1)
        unknown = NotFound("workflow", name)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        unknown.args = (f"this app has no workflow {name!r}, {hint}",)
        raise unknown
    recorded = _recorded(workflow, input, codec)
    commit = start_commit(
        workflow,
        recorded,
        run_id=run_id,
        creation=Creation.NEW,
        attributes=attributes,
        place=place,
    )
    return commit if place is None else queued(commit, place)


def _recorded(workflow: WorkflowDefinition, input: Raw, codec: Codec) -> Raw:
    """The input as a start would have recorded it: read by the annotations, and checked."""
    signature = inspect.signature(workflow.function)
    try:
        given = msgspec.json.decode(input, type=dict[str, Raw])
        unknown = [name for name in given if name not in signature.parameters]
        if unknown:
            raise WorkflowMisuse(f"there is no argument {unknown[0]!r}")
        args, kwargs = workflow.signature.decode_call(codec, input)
        recorded, _, _ = workflow.signature.encode_call(codec, args, kwargs)
    except (msgspec.DecodeError, Undecodable, PayloadError, WorkflowMisuse) as error:
        raise InvalidValue(
            f"the input does not fit {workflow.name}{signature}: {error}. "
            "Give its arguments by name, as one JSON object"
        ) from error
    return recorded


R = TypeVar("R")
T = TypeVar("T")

BATCH = 500
PAUSES = (0.02, 0.05, 0.1, 0.2, *[0.4] * 40)
"""At most, before each further try where somebody else has locked the run: they ask for the same, most
likely."""
DEBOUNCED, SINCE = "outlast.debounced", "outlast.debounced_since"


class StartMany(StartOne):
    """Begins runs for whoever has their code and claims them first, here or elsewhere."""

    _luck = random.Random()  # so that those who have met do not meet again

    async def begin(
        self,
        workflow: Workflow[..., R],
        *args: Any,
        id: str | None = None,
        on_conflict: str = "attach",
        attributes: dict[str, Attribute] | None = None,
        queue: str | QueueOptions | None = None,
        **kwargs: Any,
    ) -> RunHandle[R]:
        """Begin a run as `App.start` does, and leave it to whoever has the code: nothing of it
        happens here, so that a store on a transaction of yours will do."""
        check_start(workflow, on_conflict)
        definition = workflow.definition
        place = await self._place(queue)

        async def begin(run_id: str, creation: Creation) -> None:
            await self._write(
                self._begun(
                    definition,
                    args,
                    kwargs,
                    run_id=run_id,
                    creation=creation,
                    attributes=attributes,
                    place=place,
                )
            )

        return await self._begin(definition, args, kwargs, begin, id=id, on_conflict=on_conflict)

    async def submit(
        self,
        name: str,
        input: bytes = b"{}",
        *,
        id: str | None = None,
        attributes: dict[str, Attribute] | None = None,
        queue: str | QueueOptions | None = None,
    ) -> RunHandle[Any]:
        """Begin a run by the name of its workflow, with its arguments as a JSON object. It is left
        to whoever has the code and claims it first, here or elsewhere; the app need not be open,
        only its store. `RunExists` if the id is taken."""
        if not isinstance(name, str):
            raise InvalidValue(
                f"submit() takes the name of a workflow, not {name!r}: use begin() or start() for the "
                "workflow itself"
            )
        run_id = new_id() if id is None else check_id(id)
        place = await self._place(queue)
        commit = submission(
            self._workflows, name, Raw(input), self._codec, run_id, attributes or {}, place
        )
        await self._write(commit)
        return RunHandle(self, run_id)

    async def start_many(
        self,
        workflow: Workflow[[T], R],
        items: Iterable[T],
        *,
        id: Callable[[T], str] | None = None,
        attributes: dict[str, Attribute] | None = None,
        queue: str | QueueOptions | Callable[[T], str | QueueOptions] | None = None,
    ) -> list[RunHandle[R]]:
        """Begin a run for each item, many in one commit. `id` and `queue` may be functions of the
        item: ``start_many(ship, orders, id=lambda order: order.id, queue="ship")``. A run whose id
        is taken is left as it is, so that a call which was cut off can be repeated."""
        definition = workflow.definition
        handles: list[RunHandle[R]] = []
        commits: list[Commit] = []
        now = await self._store.now()
        await self.expect_queued()
        for item in items:
            run_id = new_id() if id is None else check_id(id(item))
            place = _placed(queue(item) if callable(queue) else queue, now)
            commit = self._begun(
                definition,
                (item,),
                {},
                run_id=run_id,
                creation=Creation.NEW,
                attributes=attributes,
                place=place,
            )
            commits.append(commit)
            handles.append(RunHandle(self, run_id))
            if len(commits) == BATCH:
                await self._write_many(commits)
                commits = []
        if commits:
            await self._write_many(commits)
        return handles

    async def debounce(
        self,
        workflow: Workflow[..., R],
        *args: Any,
        key: str,
        quiet: float,
        at_most: float | None = None,
        queue: str | QueueOptions = STARTS,
        **kwargs: Any,
    ) -> RunHandle[R]:
        """Begin a run when nobody has asked for it for `quiet` seconds, with the arguments of whoever
        asked last; `at_most` seconds after the first, however often it is asked for. All who ask with
        the same `key` before it begins get the same run; who asks later gets the next one."""
        check_id(key, "debounce key")
        check_delay(quiet)
        check_delay(0.0 if at_most is None else at_most)
        _placed(queue, EPOCH)
        if quiet == 0 or (at_most is not None and at_most < quiet):
            raise InvalidValue(
                f"quiet={quiet}, at_most={at_most} is not possible: wait a positive time, and at most "
                "a longer one"
            )
        input, _, _ = workflow.definition.signature.encode_call(self._codec, args, kwargs)
        await self.expect_queued()
        name = workflow.definition.name
        query = RunQuery(workflow=name, attributes={DEBOUNCED: key}, limit=1)
        newest = next(iter((await self._store.find(query)).items), None)
        pauses = list(PAUSES)
        while True:
            now = await self._store.now()
            waits = newest is not None and _waits(newest, name, key)
            since = _since(newest, now) if newest is not None and waits else now
            begin = now + timedelta(seconds=quiet)
            if at_most is not None:
                begin = min(begin, since + timedelta(seconds=at_most))
            place = QueueOptions(queue) if isinstance(queue, str) else queue
            place = QueueOptions(place.queue, place.key, place.priority, max(begin, now)).resolved(
                now
            )
            build = partial(
                start_commit,
                workflow.definition,
                input,
                attributes={DEBOUNCED: key, SINCE: to_micros(since)},
                place=place,
            )
            if newest is not None and waits:
                commit = _instead(newest, build(run_id=newest.id, creation=Creation.REPLACE))
            else:
                run_id = f"{name}.{key}.{_generation(newest, f'{name}.{key}.') + 1}"
                commit = build(run_id=run_id, creation=Creation.NEW)
            outcome: Outcome
            try:
                [outcome] = await self._store.commit([queued(commit, place)])
            except Busy as busy:
                outcome = busy
            if isinstance(outcome, Committed):
                return RunHandle(self, commit.run_id)
            if isinstance(outcome, Busy) and pauses:
                await self._store.clock.sleep(self._luck.uniform(0.0, pauses.pop(0)))
            elif not isinstance(outcome, RunExists | Fenced | Conflict | NotFound | RunClosed):
                raise outcome
            # Somebody else was faster: they began it, or asked for it too.
            newest = await self._store.find_one(commit.run_id)

    # -- how ----------------------------------------------------------------------------------

    async def _place(self, queue: str | QueueOptions | None) -> QueueOptions | None:
        if queue is None:
            return None
        await self.expect_queued()
        return _placed(queue, await self._store.now())

    async def expect_queued(self) -> None:
        """Something is about to wait in a queue: who lets runs begin in this process should look."""

    def _begun(
        self,
        workflow: WorkflowDefinition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        run_id: str,
        creation: Creation,
        attributes: dict[str, Attribute] | None,
        place: QueueOptions | None,
    ) -> Commit:
        """The commit that begins a run for others, or for its turn."""
        input, _, _ = workflow.signature.encode_call(self._codec, args, kwargs)
        commit = start_commit(
            workflow,
            input,
            run_id=run_id,
            creation=creation,
            attributes=attributes,
            place=place,
        )
        return commit if place is None else queued(commit, place)

    async def _write_many(self, commits: list[Commit]) -> None:
        for outcome in await self._store.commit_when_free(commits):
            if not isinstance(outcome, Committed | RunExists):
                raise outcome


def _placed(queue: str | QueueOptions | None, now: datetime) -> QueueOptions | None:
    if queue is None:
        return None
    if not isinstance(queue, str | QueueOptions):
        raise InvalidValue(f"queue={queue!r} is not possible: give its name, or an QueueOptions")
    return (QueueOptions(queue) if isinstance(queue, str) else queue).resolved(now)


def _waits(run: Run, workflow: str, key: str) -> bool:
    """Whether it is the one that was asked for under that key, and has not begun."""
    own = run.workflow == workflow and run.attributes.get(DEBOUNCED) == key
    return own and run.status is Status.PENDING and run.wait_kind == QUEUED


def _since(run: Run, now: datetime) -> datetime:
    since = run.attributes.get(SINCE)
    return from_micros(since) if isinstance(since, int) else now


def _generation(newest: Run | None, front: str) -> int:
    number = "" if newest is None else newest.id.removeprefix(front)
    return int(number) if number.isdigit() else 0


def _instead(run: Run, commit: Commit) -> Commit:
    """The commit that puts a new life in the place of one that has not begun, and only of that."""
    return msgspec.structs.replace(
        commit,
        uid=run.uid,
        token=run.token or None,
        expected=run.sequence,
        force=False,
        carry_inbox=True,
    )
