"""Which call of SQS stands for which verb of the queue."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from outlast.errors import Unsupported
from outlast.model.run_contents import Task
from outlast.queues.sqs import SqsQueue
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.queue_base import pull, put
from tests.unit.queues.sqs.places import Recording, client, own_prefix, own_queue

pytestmark = pytest.mark.server


@pytest.mark.proves("M-20")
async def test_each_verb_is_one_call(queue: SqsQueue, calls: Recording) -> None:
    """Enqueue sends, dequeue receives with a visibility, ack deletes, nack and extend change the
    visibility; nothing else is asked for."""
    await put(queue, "a")
    done = len(calls.made)
    await put(queue, "b")
    first, second = await pull(queue), await pull(queue)
    await queue.ack(first.claim)
    await queue.extend(second.claim, 45)
    await queue.nack(second.claim, delay=7)
    assert calls.since(done) == [
        "send_message_batch",
        "receive_message",
        "receive_message",
        "delete_message",
        "change_message_visibility",
        "change_message_visibility",
    ]
    assert calls.last("receive_message")["VisibilityTimeout"] == 30
    assert [
        parameters["VisibilityTimeout"]
        for operation, parameters in calls.made
        if operation == "change_message_visibility"
    ] == [45, 7]


@pytest.mark.proves("M-20")
async def test_messages_are_sent_ten_at_a_time(queue: SqsQueue, calls: Recording) -> None:
    """23 tasks are three requests, and large ones are as many as 256 KB allow."""
    await put(queue, *(f"t{number}" for number in range(23)))
    assert calls.since(0).count("send_message_batch") == 3
    large = Raw(b'"' + b"x" * 100_000 + b'"')
    done = len(calls.made)
    await queue.enqueue("work", [Task(id=f"l{number}", input=large) for number in range(5)])
    assert calls.since(done) == ["send_message_batch"] * 3


@pytest.mark.proves("M-24", "M-15")
async def test_len_is_what_sqs_estimates(queue: SqsQueue, calls: Recording) -> None:
    """ApproximateNumberOfMessages, and nothing is counted by us."""
    await put(queue, "a", "b")
    assert await queue.len("work") == 2
    assert calls.last("get_queue_attributes")["AttributeNames"] == ["ApproximateNumberOfMessages"]


@pytest.mark.proves("M-23", "M-25")
async def test_a_duplicate_is_delivered_and_acked_on_its_own(queue: SqsQueue) -> None:
    """Delivery is at least once: two messages of one task are two claims, each good for its own."""
    await put(queue, "a")
    await put(queue, "a")
    first, second = await pull(queue), await pull(queue)
    assert first.task.id == second.task.id == "a"
    await queue.ack(first.claim)
    await queue.ack(second.claim)
    assert await queue.dequeue("work") is None


@pytest.mark.proves("M-26")
async def test_backoff_is_the_visibility(queue: SqsQueue, calls: Recording) -> None:
    """Without a delay it is zero: immediate retry."""
    await put(queue, "a")
    await queue.nack((await pull(queue)).claim)
    assert calls.last("change_message_visibility")["VisibilityTimeout"] == 0
    assert (await pull(queue)).task.attempt == 2


@pytest.mark.proves("M-27")
async def test_the_redrive_policy_of_sqs_can_act(clock: ManualClock) -> None:
    """Where dead letters are left to SQS, a rejected task is shown at once, and the policy moves it;
    looking at them through us is refused."""
    made, prefix = client(clock), own_prefix()
    graveyard = made.create_queue(QueueName=f"{prefix}graves")["QueueUrl"]
    arn = made.get_queue_attributes(QueueUrl=graveyard, AttributeNames=["QueueArn"])
    policy = {"deadLetterTargetArn": arn["Attributes"]["QueueArn"], "maxReceiveCount": 1}
    url = made.create_queue(
        QueueName=f"{prefix}work", Attributes={"RedrivePolicy": json.dumps(policy)}
    )["QueueUrl"]
    calls = Recording(made)
    async with SqsQueue(
        calls, urls={"work": url}, dead_suffix=None, long_poll=0, clock=clock
    ) as queue:
        await put(queue, "a")
        await queue.nack((await pull(queue)).claim, requeue=False)
        assert calls.last("change_message_visibility")["VisibilityTimeout"] == 0
        assert await queue.dequeue("work") is None
        with pytest.raises(Unsupported, match="dead_suffix"):
            await queue.dead("work")
    found = made.receive_message(QueueUrl=graveyard)["Messages"]
    assert len(found) == 1


@pytest.mark.proves("M-27")
async def test_letters_moved_by_sqs_are_read_like_ours(clock: ManualClock) -> None:
    """A policy that moves messages to our own dead letters: they are listed and come back."""
    made, prefix = client(clock), own_prefix()
    dead = made.create_queue(QueueName=f"{prefix}work-dead")["QueueUrl"]
    arn = made.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
    policy = {"deadLetterTargetArn": arn["Attributes"]["QueueArn"], "maxReceiveCount": 1}
    made.create_queue(QueueName=f"{prefix}work", Attributes={"RedrivePolicy": json.dumps(policy)})
    async with own_queue(clock, client=made, prefix=prefix, create=False) as queue:
        await put(queue, "a")
        await pull(queue)
        clock.advance(60)
        assert await queue.dequeue("work") is None
        (moved,) = await queue.dead("work")
        assert (moved.task.id, "redrive policy" in moved.reason) == ("a", True)
        assert await queue.redrive("work") == 1
        assert (await pull(queue)).task.attempt == 1


@pytest.mark.proves("M-27")
async def test_dropping_deletes(queue: SqsQueue, calls: Recording) -> None:
    """Dropped on request: deleted, and nothing is sent anywhere."""
    await put(queue, "a")
    held = await pull(queue)
    done = len(calls.made)
    await queue.nack(held.claim, requeue=False, drop=True)
    assert calls.since(done) == ["delete_message"]
