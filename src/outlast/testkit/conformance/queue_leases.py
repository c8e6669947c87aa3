"""Conformance of a queue: a task handed out is leased, fenced by its token, and comes back."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from outlast.errors import Fenced, NotFound
from outlast.model.run_contents import Delivery
from outlast.ports.queue import Queue
from outlast.testkit.conformance.queue_base import (
    LEASE,
    QUEUE,
    QueueSuite,
    drain,
    pull,
    put,
    task,
)

VERBS = pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])


class Leases(QueueSuite):
    """Ack, nack, extend, expiry, and who wins when two hold the same task."""

    @pytest.mark.proves("M-18", "C-10")
    async def test_a_delivery_says_who_has_what_until_when(self, queue: Queue) -> None:
        """The claim names owner, task, queue and lease."""
        await queue.enqueue(QUEUE, [task("a", run_id="r", uid="u")])
        delivery = await queue.dequeue(QUEUE, owner="worker-7", visibility=LEASE)
        assert delivery is not None
        claim = delivery.claim
        assert (claim.owner, claim.task_id, claim.queue) == ("worker-7", "a", QUEUE)
        assert (claim.run_id, claim.uid) == ("r", "u")
        assert claim.expires_at == claim.claimed_at + timedelta(seconds=LEASE)
        assert claim.token > 0

    @pytest.mark.proves("M-18")
    async def test_a_task_in_flight_is_hidden(self, queue: Queue) -> None:
        """Until the lease expires, no other worker gets it."""
        await put(queue, "a")
        await pull(queue)
        await self.advance(queue, LEASE - 5)
        assert await queue.dequeue(QUEUE) is None

    @pytest.mark.proves("M-18", "M-23", "M-25")
    async def test_an_expired_lease_redelivers(self, queue: Queue) -> None:
        """A worker that died loses the task; the next delivery is one attempt further."""
        await put(queue, "a")
        first = await pull(queue)
        await self.advance(queue, LEASE + 5)
        second = await pull(queue, owner="other")
        assert (first.task.attempt, second.task.attempt) == (1, 2)
        assert second.claim.token > first.claim.token
        assert second.claim.owner == "other"

    @pytest.mark.proves("M-12", "M-18")
    async def test_each_delivery_has_its_own_lease(self, queue: Queue) -> None:
        """The lease is what the caller asks for, delivery by delivery."""
        await put(queue, "short", "long")
        await queue.dequeue(QUEUE, visibility=10)
        await queue.dequeue(QUEUE, visibility=600)
        await self.advance(queue, 20)
        assert len(await drain(queue)) == 1
        await self.advance(queue, 600)
        assert len(await drain(queue)) == 1

    @pytest.mark.proves("M-13")
    async def test_an_acked_task_never_comes_back(self, queue: Queue) -> None:
        """Done is done, also when the lease would have run out."""
        await put(queue, "a")
        await queue.ack((await pull(queue)).claim)
        await self.advance(queue, LEASE * 10)
        assert await queue.dequeue(QUEUE) is None
        assert await queue.dead(QUEUE) == []

    @pytest.mark.proves("C-10", "C-28")
    @VERBS
    async def test_an_expired_claim_that_nobody_took_still_counts(
        self, queue: Queue, verb: str
    ) -> None:
        """The lease only says when others may take over; until one does, the owner may finish."""
        await put(queue, "a")
        held = await pull(queue)
        await self.advance(queue, LEASE * 2)
        await act(queue, verb, held)
        if verb in {"ack", "extend"}:
            assert await queue.dequeue(QUEUE) is None

    @pytest.mark.proves("C-10", "M-13", "M-14")
    @VERBS
    async def test_a_superseded_claim_is_fenced(self, queue: Queue, verb: str) -> None:
        """Whoever was taken over can do no harm to the new owner, who goes on undisturbed."""
        await put(queue, "a")
        stale = await pull(queue)
        await self.advance(queue, LEASE + 5)
        current = await pull(queue)
        with pytest.raises(Fenced) as refused:
            await act(queue, verb, stale)
        assert refused.value.token == stale.claim.token
        assert await queue.dequeue(QUEUE) is None
        assert await queue.dead(QUEUE) == []
        await queue.ack(current.claim)

    @pytest.mark.proves("C-10", "M-13", "M-14")
    @VERBS
    async def test_a_task_that_is_gone_is_not_found(self, queue: Queue, verb: str) -> None:
        """After an ack every further call on the claim is refused."""
        await put(queue, "a")
        held = await pull(queue)
        await queue.ack(held.claim)
        with pytest.raises(NotFound):
            await act(queue, verb, held)

    @pytest.mark.proves("C-10", "M-14")
    @VERBS
    async def test_a_claim_given_back_is_lost(self, queue: Queue, verb: str) -> None:
        """After a nack the task is anybody's, and no longer the giver's."""
        await put(queue, "a")
        held = await pull(queue)
        await queue.nack(held.claim)
        with pytest.raises(Fenced):
            await act(queue, verb, held)
        assert await drain(queue) == ["a"]

    @pytest.mark.proves("C-10")
    @VERBS
    async def test_a_made_up_token_is_fenced(self, queue: Queue, verb: str) -> None:
        """Not only an older token: any but the current one."""
        await put(queue, "a")
        held = await pull(queue)
        forged = Delivery(held.task, replace(held.claim, token=held.claim.token + 1))
        with pytest.raises(Fenced):
            await act(queue, verb, forged)
        await queue.ack(held.claim)

    @pytest.mark.proves("C-10")
    async def test_a_claim_is_for_its_own_task_alone(self, queue: Queue) -> None:
        """A token does not open another task, of another queue or another run."""
        await queue.enqueue(QUEUE, [task("a", run_id="r1")])
        await queue.enqueue(QUEUE, [task("a", run_id="r2")])
        await queue.enqueue("other", [task("a", run_id="r1")])
        held = await pull(queue)
        await queue.ack(held.claim)
        assert await drain(queue) == ["a"]
        assert await drain(queue, "other") == ["a"]

    # -- extend -------------------------------------------------------------------------------

    @pytest.mark.proves("C-10", "S-14")
    async def test_extend_keeps_a_long_task(self, queue: Queue) -> None:
        """A heartbeat keeps the task hidden beyond its first lease; the token stays."""
        await put(queue, "a")
        claim = (await pull(queue)).claim
        for _ in range(5):
            await self.advance(queue, LEASE - 10)
            extended = await queue.extend(claim, LEASE)
            assert extended.token == claim.token
        await self.advance(queue, LEASE - 10)
        assert await queue.dequeue(QUEUE) is None
        await queue.ack(claim)

    @pytest.mark.proves("C-10", "C-11")
    async def test_extend_counts_from_now(self, queue: Queue) -> None:
        """It sets the lease and does not add to it, so it can shorten it too."""
        await put(queue, "a")
        await queue.extend((await pull(queue)).claim, 5)
        await self.advance(queue, 10)
        assert (await pull(queue)).task.attempt == 2

    # -- nack ---------------------------------------------------------------------------------

    @pytest.mark.proves("M-14", "M-26")
    async def test_nack_gives_back_at_once(self, queue: Queue) -> None:
        """Without delay the task is ready now, one attempt further."""
        await put(queue, "a")
        await queue.nack((await pull(queue)).claim)
        assert (await pull(queue)).task.attempt == 2

    @pytest.mark.proves("M-14", "M-26")
    async def test_nack_gives_back_after_a_delay(self, queue: Queue) -> None:
        """With a delay it backs off, longer than the lease would have been."""
        await put(queue, "a")
        await queue.nack((await pull(queue)).claim, delay=LEASE * 2)
        await self.advance(queue, LEASE + 10)
        assert await queue.dequeue(QUEUE) is None
        await self.advance(queue, LEASE)
        assert (await pull(queue)).task.attempt == 2

    # -- many at once -------------------------------------------------------------------------

    @pytest.mark.proves("C-10", "I22", "S-12")
    async def test_many_consumers_never_share_a_task(self, queue: Queue) -> None:
        """100 tasks and 8 consumers: each task is handed out once."""
        await put(queue, *(f"t{number}" for number in range(100)))

        async def consume(owner: str) -> list[str]:
            mine = []
            while (got := await queue.dequeue(QUEUE, owner=owner, visibility=LEASE)) is not None:
                mine.append(got.task.id)
                await asyncio.sleep(0)
                await queue.ack(got.claim)
            return mine

        shares = await asyncio.gather(*(consume(f"w{number}") for number in range(8)))
        done = [id for share in shares for id in share]
        assert len(done) == len(set(done)) == 100

    @pytest.mark.proves("C-10", "M-13")
    async def test_one_of_many_acks_wins(self, queue: Queue) -> None:
        """The same claim acked eight times at once is acked once."""
        await put(queue, "a")
        claim = (await pull(queue)).claim
        answers = await asyncio.gather(
            *(queue.ack(claim) for _ in range(8)), return_exceptions=True
        )
        assert sum(answer is None for answer in answers) == 1
        assert sum(isinstance(answer, NotFound) for answer in answers) == 7

    @pytest.mark.proves("M-11", "M-23")
    async def test_concurrent_enqueues_of_one_task_add_one(self, queue: Queue) -> None:
        """Eight producers with one task id: one of them adds it."""
        self.needs("deduplicates")
        counts = await asyncio.gather(*(queue.enqueue(QUEUE, [task("a")]) for _ in range(8)))
        assert sum(counts) == 1
        assert await drain(queue) == ["a"]


async def act(queue: Queue, verb: str, held: Delivery) -> None:
    """Do one of the things that a claim allows."""
    match verb:
        case "ack":
            await queue.ack(held.claim)
        case "nack":
            await queue.nack(held.claim)
        case "reject":
            await queue.nack(held.claim, requeue=False)
        case "extend":
            await queue.extend(held.claim, LEASE)
