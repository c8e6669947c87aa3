"""A message that does not fit is refused where it is sent, or set aside: it never fails a run."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

import outlast
from outlast.errors import InvalidValue, NotSerializable, SignalTimeout, UpdateFailed
from outlast.model import Event, EventType, Status
from outlast.model.asks import Answer, OpenAsk, parse_ask_id
from outlast.model.event import payload_of
from outlast.model.json import to_json
from outlast.model.payloads import MessageRejected
from outlast.model.run_contents import Item, Send
from outlast.query.outline import outline
from outlast.query.why import reasons
from outlast.testing import VirtualClock, app, crash_everywhere
from outlast.testing.virtual_app import VirtualApp
from outlast.urls import resolve


@dataclass
class Approval:
    by: str


approve = outlast.Signal("approve", Approval)
go = outlast.Signal("go")
price = outlast.Update("price", Decimal, bool)
progress = outlast.Query("progress", tuple[int, int])
undone: list[str] = []
MISFIT = "resume value: stored data does not fit the annotation int: expected `int`, got `str`"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    undone.clear()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store is."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@outlast.step
async def pay() -> None: ...


@pay.compensate
async def refund(_: None) -> None:
    undone.append("pay")


@outlast.workflow
async def order() -> str:
    await pay()
    approval = await approve.wait()
    count = await outlast.halt("how many?", int)
    return f"{approval.by} {count}"


def rejected(history: list[Event]) -> list[tuple[str, str, str]]:
    found = [payload_of(event) for event in history if event.type == EventType.MESSAGE_REJECTED]
    return [
        (said.kind, said.name, bytes(said.value or b"").decode())
        for said in found
        if isinstance(said, MessageRejected)
    ]


@pytest.mark.proves("I16", "D-40")
async def test_what_does_not_fit_is_set_aside(url: str) -> None:
    """A signal or an answer of another type is recorded as rejected, and the run waits on: nothing is undone."""
    async with app(order, store=url) as virtual:
        run = await virtual.start(order(), id="o")
        await run.signal("approve", "yes")
        await virtual.clock.settle()
        assert (await run.status()).status is Status.WAITING
        await run.signal(approve, Approval("ann"))
        await virtual.clock.settle()
        with pytest.raises(InvalidValue, match="expected `int`, got `str`"):
            await run.resume("many")
        [ask] = await run.asks()
        await slip_through(virtual, ask, b'"many"')
        await virtual.clock.settle()
        assert (await run.status()).status is Status.HALTED
        assert await said(virtual, "o") == [
            "It waits for a person since {}.",
            f"Set aside, it waits on: answer rejected: {MISFIT}.",
        ]
        await run.resume(3)
        assert await run.result() == "ann 3"
        assert rejected(await virtual.get("o").history()) == [
            ("signal", "approve", '"yes"'),
            ("answer", "halt", '"many"'),
        ]
        [step, wait, halt] = outline(await virtual.get("o").history())
        assert (step.rejected, len(wait.rejected), len(halt.rejected)) == ([], 1, 1)
        assert (wait.status, halt.status) == ("completed", "completed")
    assert undone == []


async def slip_through(virtual: VirtualApp, ask: outlast.Ask, value: bytes) -> None:
    """An answer that its sender could not check, as to code that has changed since."""
    _, token = parse_ask_id(ask.id)
    answer = Answer(id="unchecked", ask=token, value=Raw(value))
    item = Item(kind="resume", name="halt", id=OpenAsk(token, 1).item_id, data=Raw(to_json(answer)))
    await virtual.store.send([Send(run_id=ask.run_id, item=item)])
    virtual.store.notifier.wake()


async def said(virtual: VirtualApp, id: str) -> list[str]:
    run = await virtual.store.get(id)
    items = await virtual.store.inbox(id)
    found = reasons(
        run,
        outline(await virtual.get(id).history()),
        now=virtual.clock.now(),
        inbox=len(items),
        signals=[item.name for item in items],
    )
    return [one.text for one in found]


@pytest.mark.proves("I16")
async def test_a_crash_anywhere_rejects_the_same() -> None:
    """Before or after the rejection is written, with snapshots, evicted: one rejection, one result."""
    sweep = await crash_everywhere(
        order,
        setup=undone.clear,
        observe=lambda: list(undone),
        actions=[
            lambda run: run.signal("approve", "yes", dedup="a"),
            lambda run: run.signal(approve, Approval("ann"), dedup="b"),
            lambda run: run.resume(3),
        ],
    )
    assert sweep.ending.runs["run"].result == '"ann 3"'
    assert [kind for kind, _, _ in rejected(sweep.history)] == ["signal"]


async def test_a_rejected_message_ends_no_wait_early(url: str) -> None:
    """The time limit stays what it was."""

    @outlast.workflow
    async def impatient() -> str:
        try:
            await approve.wait(timeout=60)
        except SignalTimeout:
            return str(outlast.now())
        return "approved"

    async with app(impatient, store=url) as virtual:
        begun = virtual.clock.now()
        run = await virtual.start(impatient())
        await run.signal("approve", 1)
        ended = await run.result()
        assert (virtual.clock.now() - begun).total_seconds() >= 60
        assert ended != "approved"


async def test_the_next_life_and_a_retry_wait_on(url: str) -> None:
    """What one life has rejected is not sent to the next one; what it has not read is."""
    fails = [True]

    @outlast.step(retry=outlast.Retry(attempts=1))
    async def fragile() -> None:
        if fails:
            fails.clear()
            raise ConnectionError("once")

    @outlast.workflow
    async def lives(life: int) -> str:
        approval = await approve.wait()
        if life == 1:
            outlast.continue_as_new(lives(2))
        await fragile()
        return approval.by

    async with app(lives, store=url) as virtual:
        run = await virtual.start(lives(1), id="l")
        for value in (1, {"by": "ann"}, 2, {"by": "bob"}):
            await run.signal("approve", value)
        with pytest.raises(outlast.errors.RunFailed):
            await run.result()
        await virtual.get("l").retry()
        assert await run.result() == "bob"
        assert rejected(await virtual.get("l").history()) == [("signal", "approve", "2")]
        await run.result()
        forked = await virtual.get("l").fork("fragile", id="f")
        assert await forked.result() == "bob"


async def test_code_that_does_not_fit_a_recorded_message_parks_the_run(url: str) -> None:
    """A signal was received, and a deploy has changed its type: the history stands, and nothing is undone."""

    def version(kind: Any) -> Any:
        @outlast.workflow(name="changed")
        async def changed() -> str:
            await pay()
            first = await outlast.wait_for_signal("first", kind)
            await outlast.wait_for_signal("second")
            return str(first)

        return changed

    clock = VirtualClock()
    store = resolve(url, clock=clock)
    async with store:
        async with app(version(int), store=store, clock=clock) as old:
            await old.start("changed", id="c")
            await old.get("c").signal("first", 1)
            await clock.settle()
        async with app(version(str), store=store, clock=clock) as new:
            await new.get("c").signal("second")
            await clock.settle()
            record = await new.get("c").status()
            assert (record.status, record.wait_kind) == (Status.HALTED, "mismatch")
            assert "signal 'first'" in (record.error or "")
        async with app(version(int), store=store, clock=clock) as again:
            await again.get("c").resume()
            assert await again.get("c").result() == "1"
    assert undone == []


async def test_a_declared_message_is_checked_where_it_is_sent(url: str) -> None:
    """Nothing is written: neither for a signal nor for an update of another type."""

    @outlast.workflow
    async def typed() -> Decimal:
        known = Decimal(0)

        @price.on
        def change(new: Decimal) -> bool:
            nonlocal known
            known = new
            return new > 1

        progress.publish((1, 2))
        await go.wait()
        return known

    async with app(typed, store=url) as virtual:
        run = await virtual.start(typed(), id="t")
        with pytest.raises(NotSerializable, match="update 'price'"):
            await run.update(price, "1.5")  # type: ignore[misc]
        with pytest.raises(UpdateFailed, match="price"):
            await run.update("price", [1])
        assert await run.update(price, Decimal("1.5")) is True
        assert await run.query(progress) == (1, 2)
        with pytest.raises(NotSerializable, match="signal 'go'"):
            await run.signal(go, 1)  # type: ignore[misc]
        assert await virtual.store.inbox("t") == []
        await run.signal(go)
        assert await run.result() == Decimal("1.5")


async def test_a_misspelt_signal_is_named(url: str) -> None:
    """`why` names the message that lies unread, and the nearest name that the code waits for."""
    async with app(order, store=url) as virtual:
        run = await virtual.start(order(), id="o")
        await run.signal("aprove", {"by": "ann"})
        await run.signal("reject")
        await virtual.clock.settle()
        texts = await said(virtual, "o")
        assert (
            "The signal 'aprove' was sent, and the code does not wait for it: did you mean 'approve'?"
            in texts
        )
        assert "The signal 'reject' was sent, and the code does not wait for it yet." in texts
        assert not any("in its inbox" in text for text in texts)
        await run.signal(approve, Approval("ann"))
        await virtual.clock.settle()
        assert (await run.status()).status is Status.HALTED
