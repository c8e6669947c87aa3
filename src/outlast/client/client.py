"""Client: starts, finds and reaches runs through the store alone. What is done to one run is on its `RunHandle`.

A start is one path for every caller::

    App.start, sync.App.start, TransactionClient.start, Django's runs.start
        ──▶ Client.start ──▶ request_of (call or name → recorded input) ──▶ start_run
            ──▶ Backend.create ──▶ the store: any worker that has the code claims the run
            ──▶ Engine.start(NewRun), in an app that has the code: it runs here at once
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack, overload

from outlast._public import public
from outlast.call import Call
from outlast.client.asks import Asks
from outlast.client.backend import Backend
from outlast.client.handle import RunHandle, signal_item
from outlast.client.moved_runs import unless_moved
from outlast.client.queues import Queues
from outlast.client.start import StartRequest, check_times, debounced, difference, request_of
from outlast.client.view import RunView, view_of
from outlast.codecs import JsonCodec
from outlast.decorators import Workflow, with_children, workflows_in
from outlast.engine.replay.commit_builder import NewRun
from outlast.errors import InvalidValue, NotFound, RunClosed, RunExists
from outlast.messages import Signal
from outlast.model.commit import Commit, Committed, Creation
from outlast.model.ids import check_id, new_id
from outlast.model.query import Page, RunQuery
from outlast.model.queue_policy import STARTS, QueueOptions
from outlast.model.run import AttributeValue, Status
from outlast.model.run_contents import Item
from outlast.model.times import EPOCH, to_seconds
from outlast.model.validation import as_attributes
from outlast.ports.clock import Clock
from outlast.ports.codec import Codec
from outlast.ports.store import Store
from outlast.urls import store_of

if TYPE_CHECKING:
    from outlast.query import Count
    from outlast.schedules import Schedules

R = TypeVar("R")
List = list  # in a class that has a method `list`
Create = Callable[[NewRun], Awaitable[object]]
"""Makes a new run durable; `RunExists` if its id is taken."""

BATCH = 500


class StartOptions(TypedDict, total=False):
    """Options of a start; `Client.start` says what they do."""

    id: str | None
    on_conflict: Literal["attach", "fail", "replace"]
    attributes: Mapping[str, AttributeValue] | None
    queue: str | QueueOptions | None
    signal: FirstSignal | None


FirstSignal = tuple[str | Signal[Any], Any] | tuple[str | Signal[Any], Any, str]
"""A signal to start with: its name or declaration, the value, and a `dedup` if it may be sent again."""


@public
class Client:
    """Starts runs for any worker that has their code, and reaches runs; it runs none itself.

    ``async with Client("postgresql://…") as client:`` opens the store. A store that you made yourself is used and
    never opened or closed. `workflows` are those whose code is here, which is optional: results are then decoded by
    their types, and a start by name is checked against their parameters.
    """

    _conflicts: tuple[str, ...] = ("attach", "fail", "replace")

    def __init__(
        self,
        store: str | Store,
        *,
        workflows: Iterable[Workflow[..., Any]] = (),
        codec: Codec | None = None,
        clock: Clock | None = None,
    ) -> None:
        definitions = {one.name: one for one in with_children(workflows_in(workflows))}
        self._backend = Backend(store_of(store, clock=clock), codec or JsonCodec(), definitions)
        self._owned = self._backend.store if isinstance(store, str) else None

    async def open(self) -> None:
        """Open the store that the URL names."""
        if self._owned is not None:
            await self._owned.open()

    async def close(self) -> None:
        """Close the store that the URL names."""
        if self._owned is not None:
            await self._owned.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- starting -----------------------------------------------------------------------------

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

        ``signal=(paid, receipt)`` sends a signal in the commit that creates the run. A run that exists and may be
        attached to gets the signal too: `RunHandle.is_new` says which it was, and `RunClosed` is raised if it has
        ended. ``(paid, receipt, "pay-1")`` is received once, however often it is sent.
        """
        request = self.request(call, args, kwargs)
        return await self.start_run(request, self._backend.create, **options)

    async def start_many(
        self,
        calls: Mapping[str, Call[R]] | Iterable[Call[R]],
        *,
        attributes: Mapping[str, AttributeValue] | None = None,
        queue: str | QueueOptions | Callable[[Call[R]], str | QueueOptions] | None = None,
    ) -> List[RunHandle[R]]:
        """Start many runs, hundreds in one commit: ``start_many(ship(order) for order in orders)``.

        A dict gives each an id, ``start_many({order.id: ship(order) for order in orders})``. A run whose
        id is taken stays as it is, so that an interrupted call can be repeated. `queue` may be a function
        of the call.
        """
        given: Any = ((None, call) for call in calls)
        if isinstance(calls, Mapping):
            given = calls.items()
        handles: List[RunHandle[R]] = []
        commits: List[Commit] = []
        now = await self._backend.store.now()
        await self._backend.expect_queued()
        for id, call in given:
            request = self.request(call, where="start_many")
            new = NewRun(
                id=new_id() if id is None else check_id(id),
                workflow=request.workflow,
                definition=request.definition,
                input=request.input,
                attributes=as_attributes(attributes or {}),
                queue=_queue_options(queue(call) if callable(queue) else queue, now),
            )
            commits.append(new.commit())
            if len(commits) == BATCH:
                handles += await self._create_many(commits)
                commits = []
        if commits:
            handles += await self._create_many(commits)
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
        request = self.request(call, where="debounce")
        check_id(key, "debounce key")
        quiet = to_seconds(quiet)
        at_most = None if at_most is None else to_seconds(at_most)
        check_times(quiet, at_most)
        options = _queue_options(queue, EPOCH)
        assert options is not None
        await self._backend.expect_queued()
        run_id = await debounced(
            self._backend.store, request, key=key, quiet=quiet, at_most=at_most, queue=options
        )
        return self._started(run_id, is_new=False)

    def on(self, transaction: Any) -> TransactionClient:
        """This client inside a transaction of yours on the database of its store: what is started, sent and queued
        through it is committed, or not, with your own data. `transaction` is what `Store.on` takes: a connection
        that has started one or, on SQLAlchemy, a session."""
        return TransactionClient(self._backend, transaction)

    # -- runs ---------------------------------------------------------------------------------

    def get(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run that was started earlier or elsewhere. Nothing is read: a method of the handle raises
        `NotFound` if the run does not exist."""
        return RunHandle(self._backend, check_id(run_id, child=True))

    async def find(
        self,
        query: str = "",
        *,
        workflow: str | None = None,
        status: str | Iterable[str] = (),
        parent: str | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> AsyncIterator[RunView]:
        """All runs that match, newest first: ``find("status:failed age<1d")`` in the language of `outlast ls`,
        or ``find(workflow="order", status="failed")``."""
        wanted = RunQuery(
            workflow=workflow,
            status=frozenset(map(Status.parse, [status] if isinstance(status, str) else status)),
            parent=parent,
            attributes=as_attributes(attributes or {}),
        )
        store = self._backend.store
        if query:
            from outlast.query import all_matching, parse

            found = all_matching(store, parse(query))
        else:
            found = store.find_all(wanted)
        async for run in found:
            if not query or wanted.matches(run):
                yield view_of(run, self._backend.codec)

    async def list(
        self, query: str = "", *, limit: int = 100, after: str | None = None
    ) -> Page[RunView]:
        """A page of the runs that match, newest first: `items`, and in `next` the cursor to pass as `after` for the
        next page; None if that was all."""
        from outlast.query import parse, search

        page = await search(self._backend.store, parse(query), limit=limit, after=after)
        return Page([view_of(run, self._backend.codec) for run in page.runs], page.next)

    async def count(self, query: str = "") -> Count:
        """How many runs match: `number`, and whether there are `more` than were counted."""
        from outlast.query import count, parse

        return await count(self._backend.store, parse(query))

    @property
    def queues(self) -> Queues:
        """The named queues: their state and their rules."""
        return Queues(self._backend.store)

    @property
    def asks(self) -> Asks:
        """What runs ask people: `list`, `get` and `answer` questions."""
        return Asks(self._backend)

    @property
    def schedules(self) -> Schedules:
        """What is started by the clock."""
        from outlast.schedules import Schedules  # loaded when it is used

        return Schedules(self._backend)

    # -- how ----------------------------------------------------------------------------------

    def request(
        self,
        call: Call[Any] | str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        where: str = "start",
    ) -> StartRequest:
        """What to start: a call, or the name of a workflow and its arguments."""
        backend = self._backend
        return request_of(
            call, args, kwargs, workflows=backend.workflows, codec=backend.codec, where=where
        )

    async def start_run(
        self,
        request: StartRequest,
        create: Create,
        *,
        id: str | None = None,
        on_conflict: str = "attach",
        attributes: Mapping[str, AttributeValue] | None = None,
        queue: str | QueueOptions | None = None,
        signal: FirstSignal | None = None,
    ) -> RunHandle[Any]:
        """Start what is requested: `create` makes the run durable."""
        backend = self._backend
        item = None if signal is None else _first(backend, signal)
        if on_conflict not in self._conflicts:
            *some, last = self._conflicts
            raise InvalidValue(
                f"on_conflict={on_conflict!r} is not possible: use {', '.join(some)} or {last}"
            )
        run_id = new_id() if id is None else check_id(id)
        options = None
        if queue is not None:
            await self._backend.expect_queued()
            options = _queue_options(queue, await self._backend.store.now())
        creation = Creation.NEW
        if on_conflict == "replace":
            creation = Creation.REPLACE
            await unless_moved(backend.store, run_id)  # a run in another store cannot be ended here
            # Its children are not the new run's: the end cancels them, and tells its parent.
            with suppress(NotFound, RunClosed):
                await RunHandle[Any](backend, run_id).terminate("replaced by a new start")
        new = NewRun(
            id=run_id,
            workflow=request.workflow,
            definition=request.definition,
            input=request.input,
            creation=creation,
            attributes=as_attributes(attributes or {}),
            queue=options,
            signal=item,
        )
        is_new = True
        try:
            await create(new)
        except RunExists:
            if on_conflict == "fail":
                raise
            run = await backend.record(run_id)
            differs = await difference(request, run, backend.store, backend.codec)
            if differs:
                raise RunExists(run_id, run.uid, differs) from None
            is_new = False
            if item is not None:
                await backend.send(run_id, item)
        return self._started(run_id, is_new=is_new)

    def _started(self, run_id: str, *, is_new: bool) -> RunHandle[Any]:
        return RunHandle(self._backend, run_id, is_new=is_new)

    async def _create_many(self, commits: Sequence[Commit]) -> List[RunHandle[Any]]:
        handles = []
        for commit, outcome in zip(
            commits, await self._backend.store.commit_when_free(commits), strict=True
        ):
            if not isinstance(outcome, Committed | RunExists):
                raise outcome
            handles.append(self._started(commit.run_id, is_new=isinstance(outcome, Committed)))
        return handles


@public
class TransactionClient(Client):
    """What `on` gives: a client inside a transaction of the user's.

    ::

        async with session.begin():
            session.add(Order(id="o-1"))
            await app.on(session).start(order("o-1"), id="o-1")   # both, or neither

    Runs, signals and tasks are visible to others when the transaction is committed, and never were if it is rolled
    back. So a run starts after the commit, in the first process that claims it. The handle of `start` is for then;
    handles of `get` act within the transaction: ``app.on(session).get("o-1").signal("paid")``.
    """

    _conflicts = ("attach", "fail")

    def __init__(self, outside: Backend, transaction: Any) -> None:
        self._outside = outside
        self._backend = _TransactionBackend(outside, outside.store.on(transaction))
        self._owned = None

    def _started(self, run_id: str, *, is_new: bool) -> RunHandle[Any]:
        return RunHandle(self._outside, run_id, is_new=is_new)


class _TransactionBackend(Backend):
    def __init__(self, outside: Backend, store: Store) -> None:
        super().__init__(store, outside.codec, outside.workflows)
        self._outside = outside

    async def expect_queued(self) -> None:
        await self._outside.expect_queued()


def _first(backend: Backend, signal: object) -> Item:
    """The signal that a run is started with, as an item of its inbox."""
    if not isinstance(signal, tuple) or len(signal) not in (2, 3):
        raise InvalidValue(
            f"signal={signal!r} is not possible: give the signal and its value, signal=(approve, value)"
        )
    name, data = backend.message(signal[0], signal[1], "signal")
    return signal_item(name, data, *signal[2:])


def _queue_options(queue: str | QueueOptions | None, now: datetime) -> QueueOptions | None:
    if queue is None:
        return None
    if not isinstance(queue, str | QueueOptions):
        raise InvalidValue(f"queue={queue!r} is not possible: give its name, or QueueOptions")
    return (QueueOptions(queue) if isinstance(queue, str) else queue).resolved(now)
