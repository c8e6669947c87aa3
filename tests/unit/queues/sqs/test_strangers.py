"""Messages that this process cannot work on, where they cannot be buried or should not be."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from outlast.errors import NotFound, Unavailable
from outlast.model.run_contents import Task
from outlast.queues.sqs import SqsQueue, message, sender
from outlast.queues.sqs.message import letter_of
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.queue_base import pull, put
from tests.unit.queues.sqs.places import Recording, client, own_prefix, own_queue
from tests.unit.queues.sqs.test_trouble import Failing, _said

pytestmark = pytest.mark.server


def made(calls: Recording, prefix: str, name: str = "work") -> str:
    """An SQS queue that somebody has created; its URL."""
    answer = calls.create_queue(QueueName=prefix + name)
    return str(answer["QueueUrl"])


@pytest.mark.proves("M-20", "I10")
@pytest.mark.parametrize("kind", ["foreign", "exhausted"])
async def test_without_a_queue_for_dead_letters_nobody_is_held_up(
    clock: ManualClock, calls: Recording, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What should be dead is hidden for longer and longer, and told of once; the task behind it is
    handed out in the same call. Nothing is lost: it is buried as soon as there is a queue for it."""
    prefix = own_prefix()
    url = made(calls, prefix)
    async with own_queue(clock, client=calls, prefix=prefix, create=False) as queue:
        if kind == "foreign":
            calls.send_message(QueueUrl=url, MessageBody="hello")
        else:
            await put(queue, "bad")
            for _ in range(queue.max_attempts):
                await pull(queue)
                clock.advance(31)
        await put(queue, "ours")
        with caplog.at_level(logging.WARNING, "outlast.sqs"):
            assert (await pull(queue)).task.id == "ours"
            assert await queue.dequeue("work") is None
            clock.advance(1000)
            assert (await pull(queue)).task.id == "ours"
        assert len([one for one in caplog.records if "dead letters" in one.message]) == 1
        with pytest.raises(NotFound, match="work-dead"):
            await queue.dead("work")
        made(calls, prefix, "work-dead")
        clock.advance(1000)
        await pull(queue)
        [dead] = await queue.dead("work")
        assert dead.task.id == "bad" or dead.task.kind == "foreign"


def newer(task_id: str) -> str:
    """The text of a message of a form that does not exist yet."""
    task = msgspec.to_builtins(letter_of(msgspec.convert({"id": task_id}, Task)))
    return msgspec.json.encode({**task, "outlast": 99, "more": [1, 2]}).decode()


async def send_newer(queue: SqsQueue, calls: Recording, task_id: str, is_fifo: bool) -> None:
    """As a newer process would."""
    assert await queue.len("work") == 0
    url = calls.last("get_queue_attributes")["QueueUrl"]
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if is_fifo else {}
    calls.send_message(QueueUrl=url, MessageBody=newer(task_id), **ids)


@pytest.mark.proves("M-20", "I32")
@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
async def test_a_message_of_a_newer_form_is_left_to_newer_workers(
    clock: ManualClock, calls: Recording, is_fifo: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not dead, holds up nobody, and comes to us more and more rarely. A worker that knows its
    form gets it, though others have turned it down more often than it may be tried."""
    async with own_queue(clock, client=calls, fifo=is_fifo, max_attempts=5) as queue:
        await send_newer(queue, calls, "new", is_fifo)
        await put(queue, "ours")
        await queue.ack((await pull(queue)).claim)
        looks = 3 if is_fifo else 8
        for times in range(looks):
            before = len(calls.made)
            assert await queue.dequeue("work") is None
            assert calls.since(before) == ["receive_message"]  # it is not shown again at once
            clock.advance(2**times)
            assert await queue.dequeue("work") is None
        assert await queue.dead("work") == []
        clock.advance(1000)
        monkeypatch.setattr(message, "VERSION", 99)
        delivery = await pull(queue)
        assert delivery.task.id == "new"
        if not is_fifo:  # there its turn is kept instead
            assert delivery.task.attempt == 1


@pytest.mark.proves("M-20")
@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
async def test_a_message_that_nobody_knows_is_dead_at_last(
    clock: ManualClock, calls: Recording, is_fifo: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was left to others for days; a person can look at it then."""
    monkeypatch.setattr(sender, "MAX_RETURNS", 3)
    async with own_queue(clock, client=calls, fifo=is_fifo) as queue:
        await send_newer(queue, calls, "new", is_fifo)
        for _ in range(3):
            assert await queue.dequeue("work") is None
            assert await queue.dead("work") == []
            clock.advance(1000)
        assert await queue.dequeue("work") is None
        [dead] = await queue.dead("work")
        assert "form 99" in dead.reason


@pytest.mark.proves("M-20", "I24")
async def test_one_message_that_cannot_be_dealt_with_keeps_no_other_back(
    clock: ManualClock,
) -> None:
    """SQS fails while a foreign message is buried: what came with it is handed out all the same. If
    nothing else came, that is told."""
    calls: Any = Failing(client(clock), _said("ServiceUnavailable", 503), "delete_message")
    async with own_queue(clock, client=calls) as queue:
        await put(queue, "a")
        url = calls.get_queue_url(QueueName=queue._places._prefix + "work")["QueueUrl"]
        calls.send_message(QueueUrl=url, MessageBody="hello")
        await put(queue, "b")
        taken = await queue.take_many(["work"], owner="w", visibility=30, limit=10)
        assert {one.task.id for one in taken} == {"a", "b"}
        clock.advance(20)
        calls.send_message(QueueUrl=url, MessageBody="hello again")
        with pytest.raises(Unavailable):
            await queue.dequeue("work")
