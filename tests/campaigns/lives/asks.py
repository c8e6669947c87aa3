"""Questions to people: which answer reaches which question, in whatever becomes of the run. Stories for every store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest

import outlast
from outlast.client import Client
from outlast.errors import (
    AlreadyAnswered,
    AskClosed,
    AskUnnamed,
    InvalidId,
    InvalidValue,
    NotFound,
    RunCancelled,
    RunClosed,
)
from outlast.model import Status
from outlast.ports import Store
from outlast.testing import VirtualApp, VirtualClock, app
from tests.campaigns.lives.stories import LONG, Story, book, broken, do, done, settled


@dataclass
class Approval:
    approved: bool
    note: str = ""


async def asked(opened: VirtualApp, run_id: str, count: int = 1) -> list[outlast.Ask]:
    """The open questions of a run, once there are so many."""
    while len(found := await opened.get(run_id).asks()) != count:
        await opened.clock.sleep(1)
    return found


# -- halts ----------------------------------------------------------------------------------------


@outlast.workflow
async def two_halts(side_by_side: bool) -> list[str]:
    amounts = [{"approve": 10}, {"approve": 10_000}]
    if side_by_side:
        return list(await asyncio.gather(*(outlast.halt(amount, str) for amount in amounts)))
    return [await outlast.halt(amount, str) for amount in amounts]


async def an_answer_reaches_the_question_that_it_names(store: Store, clock: VirtualClock) -> None:
    """Two questions side by side: the second answer to the first one is refused, and says who was first; an answer that
    names none of two is refused, and says what is open."""
    async with app(two_halts, store=store, clock=clock) as opened:
        run = await opened.start(two_halts(True), id="p")
        small, large = await asked(opened, "p", 2)
        assert (small.data, large.data) == ({"approve": 10}, {"approve": 10_000})
        with pytest.raises(AskUnnamed) as unnamed:
            await run.resume("yes")
        assert unnamed.value.open == [small.id, large.id]
        await run.resume("the first yes", ask=small.id, by="ann")
        with pytest.raises(AlreadyAnswered, match="answered by ann at ") as refused:
            await run.resume("the second yes", ask=small.id, by="bob")
        assert (refused.value.by, refused.value.ask_id) == ("ann", small.id)
        await asked(opened, "p", 1)
        await run.resume("no")  # the only one that is left
        assert await run.result(timeout=LONG) == ["the first yes", "no"]


async def a_second_answer_is_not_taken_for_the_next_question(
    store: Store, clock: VirtualClock
) -> None:
    """One question after the other: whoever answers what the screen still shows is refused."""
    async with app(two_halts, store=store, clock=clock) as opened:
        run = await opened.start(two_halts(False), id="p")
        [small] = await asked(opened, "p")
        await run.resume("yes", ask=small.id, by="ann")
        while [ask.id for ask in await run.asks()] == [small.id] or not await run.asks():
            await clock.sleep(1)
        with pytest.raises(AlreadyAnswered, match="answered by ann at "):
            await run.resume("yes", ask=small.id, by="bob")
        assert (await run.status()).status is Status.HALTED
        [large] = await run.asks()
        assert large.data == {"approve": 10_000}
        await run.resume("no", ask=large.id)
        assert await run.result(timeout=LONG) == ["yes", "no"]


async def of_many_answers_at_once_one_is_first(store: Store, clock: VirtualClock) -> None:
    """Without a worker: the store decides, all others are refused with who was first, and the question is not open any
    more."""
    async with app(two_halts, store=store, clock=clock) as opened:
        await opened.start(two_halts(False), id="p")
        [small] = await asked(opened, "p")
    people = [f"person {number}" for number in range(8)]
    clients = [Client(store) for _ in people]
    outcomes = await asyncio.gather(
        *(
            client.get("p").resume(by, ask=small.id, by=by)
            for client, by in zip(clients, people, strict=True)
        ),
        return_exceptions=True,
    )
    [first] = [by for by, outcome in zip(people, outcomes, strict=True) if outcome is None]
    refusals = [outcome for outcome in outcomes if outcome is not None]
    assert {type(refusal) for refusal in refusals} == {AlreadyAnswered}
    assert {refusal.by for refusal in refusals if isinstance(refusal, AlreadyAnswered)} == {first}
    client = Client(store)
    assert await client.asks.list() == []
    answered = await client.asks.get(small.id)
    assert (answered.status, answered.by, answered.answer) == ("answered", first, first)
    async with app(two_halts, store=store, clock=clock) as opened:
        [large] = await asked(opened, "p")
        assert large.data == {"approve": 10_000}
        await opened.get("p").resume("no")
        assert await opened.get("p").result(timeout=LONG) == [first, "no"]
        again = await opened.client.asks.get(small.id)
        assert (again.status, again.by, again.answered_at) == (
            "answered",
            first,
            answered.answered_at,
        )


@outlast.workflow
async def approved_then_shaky(amount_step: bool) -> str:
    amount = await book("seat") if amount_step else "seat"
    answer = await outlast.halt({"approve": f"{amount} {done['seat']}"}, str)
    await do("shaky")
    return answer


async def an_answer_to_another_question_does_not_count_after_a_retry(
    store: Store, clock: VirtualClock
) -> None:
    """A run that was undone asks again. What it asks has changed since: the answer to the first question is set aside,
    and the run waits for one to what it asks now."""
    async with app(approved_then_shaky, store=store, clock=clock) as opened:
        run = await opened.start(approved_then_shaky(True), id="p")
        [first] = await asked(opened, "p")
        broken.add("shaky")
        await run.resume("yes", ask=first.id, by="ann")
        await settled(opened, "p")
        assert await opened.client.asks.list() == []
        broken.clear()
        await run.retry()
        [second] = await asked(opened, "p")
        assert (first.data, second.data) == ({"approve": "seat 1"}, {"approve": "seat 2"})
        assert second.id != first.id
        with pytest.raises((AlreadyAnswered, AskClosed, NotFound)):
            await run.resume("yes", ask=first.id)
        await run.resume("only once", ask=second.id)
        assert await run.result(timeout=LONG) == "only once"


@outlast.workflow
async def asks_in_each_life(life: int) -> str:
    answer = await outlast.halt({"life": life}, str)
    if life < 2:
        outlast.continue_as_new(asks_in_each_life(life + 1))
    return answer


async def each_life_asks_a_question_of_its_own(store: Store, clock: VirtualClock) -> None:
    """The next life asks under the same key: an answer to the question of the life before does not reach it."""
    async with app(asks_in_each_life, store=store, clock=clock) as opened:
        run = await opened.start(asks_in_each_life(1), id="p")
        [first] = await asked(opened, "p")
        await run.resume("one", ask=first.id)
        while not (found := await run.asks()) or found[0].id == first.id:
            await clock.sleep(1)
        with pytest.raises(NotFound, match="there is no ask"):
            await run.resume("two", ask=first.id)
        assert (await run.asks())[0].data == {"life": 2}
        await run.resume("two")
        assert await run.result(timeout=LONG) == "two"


async def what_has_ended_asks_nothing(store: Store, clock: VirtualClock) -> None:
    """A run that is cancelled or terminated closes its questions, a deleted one has none; a paused one still asks."""
    async with app(two_halts, store=store, clock=clock) as opened:
        for how in ("cancel", "terminate", "delete"):
            run = await opened.start(two_halts(True), id=how)
            small, _ = await asked(opened, how, 2)
            await run.pause()
            while (await run.status()).status is not Status.PAUSED:
                await clock.sleep(1)
            assert len(await opened.client.asks.list()) == 2
            if how == "cancel":
                await run.cancel()
                with pytest.raises(RunCancelled):
                    await run.result(timeout=LONG)
            elif how == "terminate":
                await run.terminate()
            else:
                await run.delete(force=True)
            assert await opened.client.asks.list() == []
            refusal = AskClosed if how != "delete" else NotFound
            with pytest.raises(refusal):
                await run.resume("yes", ask=small.id)
            if how != "delete":
                assert (await opened.client.asks.get(small.id)).status == "closed"
                with pytest.raises(RunClosed):
                    await run.resume("yes")


async def an_answer_waits_while_the_run_is_paused(store: Store, clock: VirtualClock) -> None:
    """It is the answer, though the run goes on later."""
    async with app(two_halts, store=store, clock=clock) as opened:
        run = await opened.start(two_halts(True), id="p")
        small, large = await asked(opened, "p", 2)
        await run.pause()
        while (await run.status()).status is not Status.PAUSED:
            await clock.sleep(1)
        await opened.client.asks.answer(small.id, "yes", by="ann")
        with pytest.raises(AlreadyAnswered):
            await opened.client.asks.answer(small.id, "no", by="bob")
        await run.resume("no", ask=large.id)  # and lets it go on
        assert await run.result(timeout=LONG) == ["yes", "no"]


async def a_fork_asks_for_itself(store: Store, clock: VirtualClock) -> None:
    """The answer to a question of one run is none to the same question of a run that was forked from it."""
    async with app(two_halts, store=store, clock=clock) as opened:
        run = await opened.start(two_halts(False), id="p")
        [small] = await asked(opened, "p")
        await run.resume("yes", ask=small.id)
        while not (found := await run.asks()) or found[0].id == small.id:
            await clock.sleep(1)
        other = await run.fork("halt#2", id="q")
        [theirs] = await asked(opened, "q")
        [ours] = await run.asks()
        assert theirs.id != ours.id
        assert theirs.run_id == "q"
        await other.resume("no", ask=theirs.id)
        assert await other.result(timeout=LONG) == ["yes", "no"]
        assert [ask.id for ask in await opened.client.asks.list()] == [ours.id]


async def a_value_that_does_not_fit_is_refused(store: Store, clock: VirtualClock) -> None:
    """By the type where the code is, by the stored schema elsewhere; the question stays open."""
    async with app(two_halts, store=store, clock=clock) as opened:
        run = await opened.start(two_halts(False), id="p")
        [small] = await asked(opened, "p")
        for client in (opened.client, Client(store)):
            with pytest.raises(InvalidValue, match=r"str|needs text"):
                await client.asks.answer(small.id, 7)
        assert [ask.id for ask in await run.asks()] == [small.id]


# -- asks -----------------------------------------------------------------------------------------

notified: list[tuple[str, str, str]] = []


@outlast.step(retry=outlast.Retry(attempts=1))
async def notify(ask: outlast.Ask, reason: str) -> None:
    notified.append((ask.id, ask.to, reason))
    if "mail" in broken:
        raise ConnectionError("no mail")


@outlast.workflow
async def expense(amount: int, days: int = 3, rest: int = 0) -> str:
    approval = await outlast.ask(
        "approve-expense",
        Approval,
        to="finance",
        title=f"Approve {amount} EUR?",
        data={"amount": amount},
        due=timedelta(days=days),
        notify=notify,
        remind=timedelta(days=1),
        escalate="cfo",
    )
    if rest:
        await outlast.sleep(days=rest)
    return f"{approval.approved} {approval.note}"


async def open_questions_of_all_runs_are_found(store: Store, clock: VirtualClock) -> None:
    """By whom they are to, also those of children; each with its title, data, form and due time. The answer says who and
    when, and the run goes on with a value of the type."""
    notified.clear()
    async with app(expense, parent_of_asks, store=store, clock=clock) as opened:
        asks = opened.client.asks
        run = await opened.start(expense(10), id="e")
        await opened.start(parent_of_asks(), id="p")
        while len(await asks.list(to="finance")) != 2:
            await clock.sleep(1)
        [ask] = await run.asks()
        [child] = [one for one in await asks.list(to="finance") if one.run_id != "e"]
        assert child.run_id.startswith("p~")
        assert await asks.list(to="legal") == []
        assert len(await asks.list(to=["finance", "legal"])) == 2
        assert len(await asks.list(workflow="expense", limit=1)) == 1
        assert (ask.name, ask.title, ask.to) == ("approve-expense", "Approve 10 EUR?", "finance")
        assert (ask.data, ask.status, ask.workflow) == ({"amount": 10}, "open", "expense")
        assert ask.asked_at is not None
        assert ask.due_at == ask.asked_at + timedelta(days=3)
        assert ask.schema is not None
        assert "Approval" in str(ask.schema)
        for client in (opened.client, Client(store)):  # with the type, and with the schema
            with pytest.raises(InvalidValue, match="approved"):
                await client.asks.answer(ask.id, {"note": "well"}, by="ann")
        await Client(store).asks.answer(ask.id, {"approved": True, "note": "fine"}, by="ann")
        with pytest.raises(AlreadyAnswered, match="answered by ann at "):
            await asks.answer(ask.id, Approval(False), by="bob")
        assert await run.result(timeout=LONG) == "True fine"
        past = await asks.get(ask.id)
        assert (past.status, past.by, past.answer) == (
            "answered",
            "ann",
            {"approved": True, "note": "fine"},
        )
        assert past.answered_at is not None
        assert [one.id for one in await asks.list()] == [child.id]
        assert (ask.id, "finance", "asked") in notified


@outlast.workflow
async def parent_of_asks() -> str:
    return await expense(99)


async def an_overdue_question_is_escalated_and_still_answered(
    store: Store, clock: VirtualClock
) -> None:
    """Reminders come daily until it is answered; when it is due it goes to another group, and a late answer counts."""
    notified.clear()
    async with app(expense, store=store, clock=clock) as opened:
        asks = opened.client.asks
        run = await opened.start(expense(10, rest=5), id="e")
        [ask] = await asked(opened, "e")
        await clock.sleep(2.5 * 86400)
        assert [reason for _, _, reason in notified] == ["asked", "reminder", "reminder"]
        assert not (await asks.get(ask.id)).is_overdue(clock.now())
        await clock.sleep(86400)
        while len(notified) < 4:
            await clock.sleep(1)
        assert notified[3] == (ask.id, "cfo", "overdue")
        assert await asks.list(to="finance") == []
        [late] = await asks.list(to="cfo")
        assert (late.id, late.to, late.is_overdue(clock.now())) == (ask.id, "cfo", True)
        await asks.answer(ask.id, Approval(True, "late"), by="carl")
        count = len(notified)
        assert await run.result(timeout=10 * 86400) == "True late"
        assert len(notified) == count
        past = await asks.get(ask.id)
        assert (past.to, past.by) == ("cfo", "carl")


async def a_notification_that_fails_leaves_the_question_open(
    store: Store, clock: VirtualClock
) -> None:
    """The failure is recorded, the question stays open and is answered."""
    notified.clear()
    broken.add("mail")
    async with app(expense, store=store, clock=clock) as opened:
        run = await opened.start(expense(10), id="e")
        [ask] = await asked(opened, "e")
        while not notified:
            await clock.sleep(1)
        await clock.sleep(10)
        assert (await run.status()).status is Status.HALTED
        await opened.client.asks.answer(ask.id, Approval(True))
        assert await run.result(timeout=LONG) == "True "


@outlast.workflow
async def impatient_asks() -> str:
    try:
        async with asyncio.timeout(60):
            return await outlast.ask("name", str)
    except TimeoutError:
        answers = await asyncio.gather(
            outlast.scope(asks_inside, "left"), outlast.scope(asks_inside, "right")
        )
        return " ".join(answers)


async def asks_inside(side: str) -> str:
    return await outlast.ask(f"name-{side}", str)


async def a_question_that_the_code_gives_up_is_closed(store: Store, clock: VirtualClock) -> None:
    """After a time limit of the code its question is closed, and cannot be answered; scopes ask questions of their own."""
    async with app(impatient_asks, store=store, clock=clock) as opened:
        run = await opened.start(impatient_asks(), id="p")
        [given_up] = await asked(opened, "p")
        await clock.sleep(61)
        left, right = await asked(opened, "p", 2)
        with pytest.raises(AskClosed, match="closed"):
            await opened.client.asks.answer(given_up.id, "Ada")
        assert (await opened.client.asks.get(given_up.id)).status == "closed"
        await opened.client.asks.answer(right.id, "Bo")
        await opened.client.asks.answer(left.id, "Al")
        assert await run.result(timeout=LONG) == "Al Bo"


@outlast.workflow
async def asks_beside_a_failure() -> str:
    answer = asyncio.ensure_future(outlast.ask("name", str, to="ann"))
    await do("shaky")
    return await answer


async def a_question_from_before_the_failure_keeps_its_id(
    store: Store, clock: VirtualClock
) -> None:
    """The failure closes it, a retry opens it again under the same id."""
    async with app(asks_beside_a_failure, store=store, clock=clock) as opened:
        broken.add("shaky")
        run = await opened.start(asks_beside_a_failure(), id="p")
        [before] = await asked(opened, "p")
        await settled(opened, "p")
        assert await opened.client.asks.list() == []
        with pytest.raises(AskClosed):
            await opened.client.asks.answer(before.id, "Ada")
        broken.clear()
        await run.retry()
        [again] = await asked(opened, "p")
        assert again.id == before.id
        await opened.client.asks.answer(before.id, "Ada", by="ann")
        assert await run.result(timeout=LONG) == "Ada"


async def ids_that_name_no_question_are_refused(store: Store, clock: VirtualClock) -> None:
    """One that is no id, one of a run that is not there, one that the run never asked."""
    async with app(expense, store=store, clock=clock) as opened:
        await opened.start(expense(10), id="e")
        await asked(opened, "e")
        asks = opened.client.asks
        for id, refusal in (("e", InvalidId), ("x/abcdefgh", NotFound), ("e/abcdefgh", NotFound)):
            with pytest.raises(refusal):
                await asks.get(id)
            with pytest.raises(refusal):
                await asks.answer(id, Approval(True))


ASK_STORIES: tuple[Story, ...] = (
    an_answer_reaches_the_question_that_it_names,
    a_second_answer_is_not_taken_for_the_next_question,
    of_many_answers_at_once_one_is_first,
    an_answer_to_another_question_does_not_count_after_a_retry,
    each_life_asks_a_question_of_its_own,
    what_has_ended_asks_nothing,
    an_answer_waits_while_the_run_is_paused,
    a_fork_asks_for_itself,
    a_value_that_does_not_fit_is_refused,
    open_questions_of_all_runs_are_found,
    an_overdue_question_is_escalated_and_still_answered,
    a_notification_that_fails_leaves_the_question_open,
    a_question_that_the_code_gives_up_is_closed,
    a_question_from_before_the_failure_keeps_its_id,
    ids_that_name_no_question_are_refused,
)
