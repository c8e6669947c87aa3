"""A story that uses every primitive that writes, told by a client that survives ambiguity.

All ids are fixed, so that two tellings of the story end in the same state but for times and the
counter of tokens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from msgspec import Raw

from outlast.errors import Conflict, DuplicateEvent, Fenced
from outlast.model import (
    Activity,
    Change,
    Claim,
    Commit,
    Creation,
    Entry,
    Event,
    Fact,
    Item,
    Receipt,
    Run,
    Send,
    Snapshot,
    Start,
    Status,
    Task,
    Timer,
)
from outlast.model.times import NOW
from outlast.ports import Store
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.dump import Dump, dump
from outlast.testkit.faults import again, persist

TTL = 30.0
FACT = Fact.of(b"a large value")
FREE = Fact.of(b"a value of nobody")
GONE = Fact.of(b"a value that is dropped")
FACTS = [("order", FACT.hash), ("", FREE.hash), ("", GONE.hash)]
KEYS = [("start", "request-1"), ("start", "request-2"), ("job", "nightly")]


async def tell(store: Store, clock: ManualClock) -> None:
    """Begin, append, claim, commit, send, consume, fire, do a task, delete, expire, end."""
    await _begin(store)
    claim = await _claim(store, clock, "order")
    await persist(store, _main_turn(claim))
    await _signals(store)
    await _consume(store, claim)
    await _timers(store, clock)
    await _task(store, clock)
    await _keys_and_facts(store, clock)
    claim = await _claim(store, clock, "order")
    await again(lambda: store.renew([claim], TTL))
    await persist(
        store,
        Commit(
            run_id="order",
            id="c-end",
            uid="u-order",
            token=claim.token,
            events=(_event("order", "e-end", "workflow.completed"),),
            change=Change(status=Status.COMPLETED, result=Raw(b'"done"')),
        ),
    )
    await again(lambda: store.delete("temp"))
    clock.advance(3600)
    before = clock.now() - timedelta(minutes=30)
    await again(lambda: store.expire(before, status=[Status.FAILED]))


async def state(store: Store) -> Dump:
    """How the story ended."""
    return await dump(store, facts=FACTS, keys=KEYS)


async def _begin(store: Store) -> None:
    order = Run(id="order", uid="u-order", workflow="order", runnable_at=NOW)
    started = _event("order", "e-1", "workflow.started")
    await persist(store, Commit(run_id="order", id="c-begin", create=order, events=(started,)))
    for name, status in (("temp", Status.PENDING), ("old", Status.FAILED)):
        run = Run(id=name, uid=f"u-{name}", status=status)
        await persist(store, Commit(run_id=name, id=f"c-{name}", create=run, facts=(FACT,)))
    log = Run(id="log", uid="u-log")
    await persist(store, Commit(run_id="log", id="c-log", create=log, creation=Creation.UPSERT))
    # The convenience makes a commit of its own for each call: a client settles by its event ids.
    await _append(store, "log", _event("log", "l-1"), expected=0)
    await _append(store, "log", _event("log", "l-2"), expected=None)
    line = Entry(id="a-log", run_id="log", step_id="log", action="opened")
    await persist(store, Commit(run_id="log", id="c-line", entries=(line,)))


async def _append(store: Store, run_id: str, event: Event, *, expected: int | None) -> None:
    try:
        await again(lambda: store.append(run_id, [event], expected=expected))
    except (Conflict, DuplicateEvent):
        history = await again(lambda: store.history(run_id))
        assert event.id in [known.id for known in history]


async def _claim(store: Store, clock: ManualClock, run_id: str) -> Claim:
    """Claim a run. An answer that was lost may be a claim that we hold and do not know of: then
    only the end of its lease helps."""

    async def attempt() -> Claim | None:
        claimed = await again(lambda: store.claim_runs("w", TTL, run_ids=[run_id]))
        return claimed[0].claim if claimed else None

    return await _until_leased(attempt, clock)


async def _until_leased(
    attempt: Callable[[], Awaitable[Claim | None]], clock: ManualClock
) -> Claim:
    for _ in range(10):
        if (claim := await attempt()) is not None:
            return claim
        clock.advance(TTL + 1)
    raise AssertionError("never got the claim")


def _main_turn(claim: Claim) -> Commit:
    """One commit with all its parts."""
    child = Run(id="order~1", uid="u-child", workflow="ship", parent="order", runnable_at=NOW)
    news = Item(kind="signal", name="news", id="i-news", data=Raw(b"1"))
    return Commit(
        run_id="order",
        id="c-main",
        uid="u-order",
        expected=1,
        token=claim.token,
        events=(_event("order", "e-2"), _event("order", "e-3", "step.completed")),
        change=Change(status=Status.RUNNING, ctx={"stage": Raw(b'"paid"')}, current_step="pay"),
        sends=(Send(run_id="log", item=news), Send(run_id="nobody", item=news)),
        starts=(Start(child, (_event("order~1", "k-1", "workflow.started"),)),),
        tasks=(Task(id="pack", run_id="order", input=Raw(b"[1]")), Task(id="skip", run_id="order")),
        timers=(Timer(run_id="order", id="soon", fire_at=claim.claimed_at + timedelta(seconds=5)),),
        facts=(FACT,),
        entries=(Entry(id="a-1", run_id="order", step_id="pay", action="completed"),),
        activities=(Activity(id="act", run_id="order", status=Status.COMPLETED, attempt=1),),
        snapshot=Snapshot(run_id="order", sequence=3, data=b"state"),
    )


async def _signals(store: Store) -> None:
    for number in (1, 2):
        item = Item(kind="signal", name="go", id=f"i-{number}", data=Raw(b"%d" % number))
        (receipt,) = await again(lambda item=item: store.send([Send(run_id="order", item=item)]))  # type: ignore[misc]
        assert isinstance(receipt, Receipt)
        assert receipt.number == number


async def _consume(store: Store, claim: Claim) -> None:
    """Consume the first signal and park with the second unseen: the run stays runnable and ours;
    then consume the second and let go."""
    items = await again(lambda: store.inbox("order"))
    assert [item.id for item in items] == ["i-1", "i-2"]
    for number in (1, 2):
        consume = Commit(
            run_id="order",
            id=f"c-consume-{number}",
            token=claim.token,
            events=(_event("order", f"e-signal-{number}", "signal.received"),),
            change=Change(status=Status.WAITING, runnable_at=None),
            consumes=(number,),
            seen=number,
            release=True,
        )
        committed = await persist(store, consume)
        assert committed.again or committed.still_runnable == (number == 1)


async def _timers(store: Store, clock: ManualClock) -> None:
    clock.advance(10)
    claim = await _claim(store, clock, "order")
    due = await again(store.due_timers)
    assert [timer.id for timer in due] == ["soon"]
    commit = Commit(run_id="order", id="c-fired", token=claim.token, fired=("soon",), release=True)
    committed = await persist(store, commit)
    assert committed.again or committed.fired == ("soon",)


async def _task(store: Store, clock: ManualClock) -> None:
    """Do one task, drop the other; the result goes to the inbox, with the end of the task."""
    available = await again(lambda: store.find_available_tasks(limit=10))
    assert [task.id for task in available] == ["pack", "skip"]

    async def attempt() -> Claim | None:
        return await again(lambda: store.claim_task("order", "pack", "w", ttl=TTL))

    task = await _until_leased(attempt, clock)
    result = Send(run_id="order", item=Item(kind="result", name="pack", id="r-pack"))
    try:
        await again(lambda: store.send([result], finishes=[task]))
    except Fenced:
        # The claim is gone because the send that finished the task has happened: it says so.
        (receipt,) = await again(lambda: store.send([result]))
        assert receipt == Receipt(3, again=True)
    claim = await _claim(store, clock, "order")
    await persist(
        store,
        Commit(
            run_id="order",
            id="c-result",
            token=claim.token,
            drops=("skip",),
            consumes=(3,),
            seen=3,
            change=Change(runnable_at=None),
            release=True,
        ),
    )


async def _keys_and_facts(store: Store, clock: ManualClock) -> None:
    for key in ("request-1", "request-2"):
        created, bound = await again(lambda key=key: store.bind_start(key, "order"))  # type: ignore[misc]
        assert bound == "order", created
    await again(lambda: store.remember("job", "nightly", "by-temp", run_id="temp"))
    for fact in (FREE, GONE):
        await again(lambda fact=fact: store.put_fact(fact))  # type: ignore[misc]
    await again(lambda: store.drop_fact(GONE.hash))
    await again(lambda: store.drop_snapshot("order"))
    claim = await _claim(store, clock, "log")
    await again(lambda: store.release([claim]))


def _event(run_id: str, id: str, type: str = "step.started") -> Event:
    return Event(type=type, run_id=run_id, id=id, step_name="pay", data=Raw(b'{"attempt":1}'))
