"""Client: starts runs, and acts on them, through the store alone.

A start is one path for every caller::

    App.start, sync.App.start, TransactionClient.start, Django's runs.start
        ──▶ Client.start ──▶ request_of (call or name → recorded input)
            ──▶ NewRun.commit ──▶ the store: any worker that has the code claims the run
            ──▶ Engine.start(NewRun), in an app that has the code: it runs here at once
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from outlast._public import public
from outlast.call import Call
from outlast.client.debounce import check_times, debounced
from outlast.client.handle import RunHandle
from outlast.client.moved_runs import unless_moved
from outlast.client.run_actions import RunActions
from outlast.client.start import StartRequest, difference, request_of
from outlast.engine.runner.history_loader import NewRun
from outlast.errors import InvalidValue, NotFound, RunClosed, RunExists
from outlast.model.commit import Commit, Committed, Creation
from outlast.model.ids import check_id, new_id
from outlast.model.queue_policy import STARTS, QueueOptions
from outlast.model.run import AttributeValue
from outlast.model.times import EPOCH, to_seconds
from outlast.model.validation import as_attributes

R = TypeVar("R")
Create = Callable[[NewRun], Awaitable[object]]
"""Makes a new run durable; `RunExists` if its id is taken."""

BATCH = 500


class StartOptions(TypedDict, total=False):
    """Options of a start; `Client.start` says what they do."""

    id: str | None
    on_conflict: Literal["attach", "fail", "replace"]
    attributes: Mapping[str, AttributeValue] | None
    queue: str | QueueOptions | None


@public
class Client(RunActions):
    """Starts runs for any worker that has their code, and acts on runs."""

    _conflicts: tuple[str, ...] = ("attach", "fail", "replace")

    @overload
    async def start(self, call: Call[R], **options: Unpack[StartOptions]) -> RunHandle[R]: ...
    @overload
    async def start(
        self,
        call: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> RunHandle[Any]: ...
    async def start(
        self,
        call: Call[Any] | str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> RunHandle[Any]:
        """Start a run: ``start(order("Momo"), id="order-1")``. Any worker that has the code runs it.

        Without the code, name the workflow: ``start("order", ["Momo"], {"express": True})``.

        `id` is the idempotency key. When it is taken (`on_conflict`), ``attach`` gives the run that has it if that is
        the same workflow with the same input, and raises `RunExists` otherwise; ``fail`` always raises;
        ``replace`` ends that run and starts a new one. `attributes` are what `find` finds the run by. With
        `queue` it waits there for its turn, or for its time:
        ``queue=QueueOptions("mail", key=tenant, delay=60)``.
        """
        return await self._start(self._request(call, args, kwargs), self._create, **options)

    async def start_many(
        self,
        calls: Mapping[str, Call[R]] | Iterable[Call[R]],
        *,
        attributes: Mapping[str, AttributeValue] | None = None,
        queue: str | QueueOptions | Callable[[Call[R]], str | QueueOptions] | None = None,
    ) -> list[RunHandle[R]]:
        """Start many runs, hundreds in one commit: ``start_many(ship(order) for order in orders)``.

        A dict gives each an id, ``start_many({order.id: ship(order) for order in orders})``. A run whose
        id is taken stays as it is, so that an interrupted call can be repeated. `queue` may be a function
        of the call.
        """
        given: Any = ((None, call) for call in calls)
        if isinstance(calls, Mapping):
            given = calls.items()
        handles: list[RunHandle[R]] = []
        commits: list[Commit] = []
        now = await self._store.now()
        await self.expect_queued()
        for id, call in given:
            request = self._request(call, where="start_many")
            new = NewRun(
                id=new_id() if id is None else check_id(id),
                workflow=request.workflow,
                definition=request.definition,
                input=request.input,
                attributes=as_attributes(attributes or {}),
                queue=_queue_options(queue(call) if callable(queue) else queue, now),
            )
            commits.append(new.commit())
            handles.append(self._handle(new.id))
            if len(commits) == BATCH:
                await self._create_many(commits)
                commits = []
        if commits:
            await self._create_many(commits)
        return handles

    async def debounce(
        self,
        call: Call[R],
        *,
        key: str,
        quiet: float | timedelta,
        at_most: float | timedelta | None = None,
        queue: str | QueueOptions = STARTS,
    ) -> RunHandle[R]:
        """Start a run when it has not been asked for during `quiet` (seconds, or a timedelta), with the call that was given
        last; at the latest `at_most` after the first request. Requests with the same `key` before
        it starts get the same run, a later one the next run."""
        request = self._request(call, where="debounce")
        check_id(key, "debounce key")
        quiet = to_seconds(quiet)
        at_most = None if at_most is None else to_seconds(at_most)
        check_times(quiet, at_most)
        options = _queue_options(queue, EPOCH)
        assert options is not None
        await self.expect_queued()
        run_id = await debounced(
            self._store, request, key=key, quiet=quiet, at_most=at_most, queue=options
        )
        return self._handle(run_id)

    def handle(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run that was started earlier or elsewhere."""
        return self._handle(check_id(run_id, child=True))

    def _handle(self, run_id: str) -> RunHandle[Any]:
        return RunHandle(self, run_id)

    async def expect_queued(self) -> None:
        """Called before something is put into a queue: an app looks at its queues from then on."""

    # -- how ----------------------------------------------------------------------------------

    def _request(
        self,
        call: Call[Any] | str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        where: str = "start",
    ) -> StartRequest:
        return request_of(
            call, args, kwargs, workflows=self._workflows, codec=self._codec, where=where
        )

    async def _start(
        self,
        request: StartRequest,
        create: Create,
        *,
        id: str | None = None,
        on_conflict: str = "attach",
        attributes: Mapping[str, AttributeValue] | None = None,
        queue: str | QueueOptions | None = None,
    ) -> RunHandle[Any]:
        if on_conflict not in self._conflicts:
            *some, last = self._conflicts
            raise InvalidValue(
                f"on_conflict={on_conflict!r} is not possible: use {', '.join(some)} or {last}"
            )
        run_id = new_id() if id is None else check_id(id)
        options = None
        if queue is not None:
            await self.expect_queued()
            options = _queue_options(queue, await self._store.now())
        creation = Creation.NEW
        if on_conflict == "replace":
            creation = Creation.REPLACE
            await unless_moved(self._store, run_id)  # a run in another store cannot be ended here
            # Its children are not the new run's: the end cancels them, and tells its parent.
            with suppress(NotFound, RunClosed):
                await self.terminate(run_id, "replaced by a new start")
        new = NewRun(
            id=run_id,
            workflow=request.workflow,
            definition=request.definition,
            input=request.input,
            creation=creation,
            attributes=as_attributes(attributes or {}),
            queue=options,
        )
        try:
            await create(new)
        except RunExists:
            if on_conflict == "fail":
                raise
            run = await self.get(run_id)
            differs = await difference(request, run, self._store, self._codec)
            if differs:
                raise RunExists(run_id, run.uid, differs) from None
        return self._handle(run_id)

    async def _create(self, new: NewRun) -> None:
        await self._write(new.commit())

    async def _create_many(self, commits: list[Commit]) -> None:
        for outcome in await self._store.commit_when_free(commits):
            if not isinstance(outcome, Committed | RunExists):
                raise outcome


def _queue_options(queue: str | QueueOptions | None, now: datetime) -> QueueOptions | None:
    if queue is None:
        return None
    if not isinstance(queue, str | QueueOptions):
        raise InvalidValue(f"queue={queue!r} is not possible: give its name, or QueueOptions")
    return (QueueOptions(queue) if isinstance(queue, str) else queue).resolved(now)
