"""What goes wrong at SQS: foreign messages, wrong names, lost answers, secrets, rough roads."""

from __future__ import annotations

import json
import threading
import traceback
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from outlast.errors import (
    Fenced,
    InvalidId,
    InvalidValue,
    NotFound,
    OutlastError,
    StoreFault,
    Unavailable,
    UnknownOutcome,
)
from outlast.model.run_contents import Task
from outlast.queues.sqs import SqsQueue
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.queue_base import drain, pull, put
from outlast.testkit.conformance.queue_leases import act
from tests.unit.queues.sqs.places import Recording, client, endpoint, own_queue
from tests.unit.queues.sqs.rough import Rough

pytestmark = pytest.mark.server

FOREIGN = {
    "text": "hello",
    "json": '{"order": 17}',
    "list": "[1, 2]",
    "nested": "[" * 5000,
    "almost": '{"outlast": 1, "task": {"id": 5}}',
    "nameless": '{"outlast": 1, "task": {"id": ""}}',
    "ancient": '{"outlast": 0, "task": {"id": "x"}}',
    "damaged": '{"outlast": 1, "task": {"id": "x"}, "input64": "%%%"}',
    "large": "x" * 262_000,
}


@pytest.mark.proves("M-20", "I10")
@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
async def test_a_message_that_is_not_ours_is_a_dead_letter(
    clock: ManualClock, calls: Recording, kind: str, is_fifo: bool
) -> None:
    """It holds up nobody: the task behind it is handed out in the same call. It is kept with a
    reason, can be looked at, redriven (and is dead again) and purged."""
    async with own_queue(clock, client=calls, fifo=is_fifo) as queue:
        assert await queue.len("work") == 0
        url = calls.last("get_queue_attributes")["QueueUrl"]
        ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if is_fifo else {}
        calls.send_message(QueueUrl=url, MessageBody=FOREIGN[kind], **ids)
        await put(queue, "ours")
        assert (await pull(queue)).task.id == "ours"
        (dead,) = await queue.dead("work")
        assert "outlast" in dead.reason
        if dead.task.kind == "foreign":
            kept = json.loads(bytes(dead.task.input or b""))
            assert kept
            assert FOREIGN[kind].startswith(kept)
        assert await queue.redrive("work") == 1
        assert await queue.dequeue("work") is None
        assert await queue.purge("work") == 1
        assert await queue.dead("work") == []


@pytest.mark.parametrize("name", ["käse", "a b", "a/b", "x" * 81, "work.fifo"])
async def test_names_that_sqs_does_not_take_are_refused(queue: SqsQueue, name: str) -> None:
    """With what is allowed, before SQS is asked."""
    with pytest.raises(InvalidId, match="80 of A-Z"):
        await queue.enqueue(name, [Task()])


@pytest.mark.parametrize(
    "url", ["", "work", "ftp://host/1/work", "https://", "https://host/1/a b", "https://host/"]
)
async def test_wrong_urls_are_refused(url: str) -> None:
    """When the queue is made."""
    with pytest.raises((InvalidValue, InvalidId)):
        SqsQueue(client(), urls={"work": url})


async def test_wrong_options_are_refused() -> None:
    """A poll longer than SQS waits, no room for dead letters, an endpoint that is none."""
    for options in ({"long_poll": 21}, {"long_poll": -1}, {"dead_suffix": ""}):
        with pytest.raises(InvalidValue):
            SqsQueue(client(), **options)
    with pytest.raises(InvalidValue, match="endpoint"):
        await SqsQueue(endpoint="nowhere", region="x").open()


async def test_a_queue_that_is_missing_is_not_created_unasked(clock: ManualClock) -> None:
    """Unless that is wanted: a typing error would make a queue that nobody reads."""
    async with own_queue(clock, create=False) as queue:
        with pytest.raises(NotFound, match="work"):
            await put(queue, "a")


async def test_a_client_passed_in_is_never_closed(clock: ManualClock) -> None:
    """It is the caller's; a queue that made its own closes it."""
    calls = Recording(client(clock))
    async with own_queue(clock, client=calls) as queue:
        await put(queue, "a")
    assert "close" not in calls.since(0)


async def test_a_client_is_made_if_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """With credentials as AWS tools find them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOWN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with SqsQueue(endpoint=endpoint(), region="eu-central-1") as queue:
        with pytest.raises(NotFound):
            await queue.len("nobody-made-this")


# -- errors -----------------------------------------------------------------------------------


class Failing:
    """A client whose calls fail in one way, or in one operation."""

    def __init__(self, inner: Any, error: Exception, operation: str = "") -> None:
        self._inner, self._error, self._operation = inner, error, operation

    def __getattr__(self, operation: str) -> Any:
        def call(**parameters: Any) -> Any:
            if self._operation in ("", operation):
                raise self._error
            return getattr(self._inner, operation)(**parameters)

        return call


def _said(
    code: str, status: int = 400, message: str = "AKIASECRET signed wJalrSECRET"
) -> Exception:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    error: Exception = ClientError(answer, "SendMessage")
    return error


ERRORS: dict[str, tuple[Exception, type[OutlastError]]] = {
    "denied": (_said("AccessDenied", 403), StoreFault),
    "bad signature": (_said("SignatureDoesNotMatch", 403), StoreFault),
    "expired": (_said("ExpiredToken", 403), StoreFault),
    "throttled": (_said("RequestThrottled"), Unavailable),
    "in flight": (_said("OverLimit", 403), Unavailable),
    "down": (_said("Weird", 503), Unavailable),
    "unreachable": (
        EndpointConnectionError(endpoint_url="http://AKIASECRET:wJalrSECRET@host/"),
        Unavailable,
    ),
    "answer lost": (ReadTimeoutError(endpoint_url="http://host/"), UnknownOutcome),
}


@pytest.mark.parametrize("kind", ERRORS)
async def test_errors_of_aws_are_ours_and_tell_no_secret(clock: ManualClock, kind: str) -> None:
    """One tree of errors; neither the text nor the traceback shows what botocore knew."""
    error, ours = ERRORS[kind]
    failing = Failing(client(clock), error, "send_message_batch")
    async with own_queue(clock, client=failing) as queue:
        with pytest.raises(ours) as caught:
            await put(queue, "a")
    shown = "".join(traceback.format_exception(caught.value))
    assert "SECRET" not in shown
    assert "work" in str(caught.value)


@pytest.mark.proves("C-10", "M-25")
@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
@pytest.mark.parametrize(
    "code", ["ReceiptHandleIsInvalid", "AWS.SimpleQueueService.MessageNotInflight"]
)
async def test_what_sqs_says_is_lost_is_fenced(clock: ManualClock, verb: str, code: str) -> None:
    """A receipt that is not good any more: somebody else has the task, or will have it."""
    inner = client(clock)
    failing = Failing(inner, _said(code), "change_message_visibility")
    failing = Failing(failing, _said(code), "delete_message")
    async with own_queue(clock, client=failing) as queue:
        await put(queue, "a")
        held = await pull(queue)
        with pytest.raises(Fenced):
            await act(queue, verb, held)
        with pytest.raises(Fenced):
            await queue.ack(held.claim)


async def test_missing_credentials_are_said_so(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What to do, and no stack of botocore's to be read."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    bare: Any = boto3.session.Session(region_name="x").client("sqs", endpoint_url=endpoint())
    async with SqsQueue(bare) as queue:
        with pytest.raises(InvalidValue, match="credentials"):
            await queue.len("work")


async def test_a_part_that_sqs_refused_is_told(clock: ManualClock) -> None:
    """Some were sent and some were not: the outcome is unknown, and sending all again is right."""

    class HalfHearted(Recording):
        def send_message_batch(self, **parameters: Any) -> Any:
            return {"Successful": [{"Id": "0"}], "Failed": [{"Id": "1", "Code": "InternalError"}]}

    async with own_queue(clock, client=HalfHearted(client(clock))) as queue:
        with pytest.raises(UnknownOutcome, match="1 of 2"):
            await put(queue, "a", "b")


async def test_a_call_that_takes_too_long_is_given_up(clock: ManualClock) -> None:
    """The caller's deadline holds, whatever the thread still does."""
    released = threading.Event()

    class Stuck(Recording):
        def delete_message(self, **parameters: Any) -> Any:
            released.wait(60)

    async with own_queue(clock, client=Stuck(client(clock))) as queue:
        await put(queue, "a")
        with pytest.raises(UnknownOutcome, match="took longer"):
            await queue.ack((await pull(queue)).claim, timeout=0.01)
        released.set()


# -- a rough road -----------------------------------------------------------------------------


@pytest.mark.proves("M-23", "M-25", "I23")
@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
async def test_on_a_rough_road_nothing_is_lost(clock: ManualClock, is_fifo: bool) -> None:
    """Doubled, delayed and overtaken messages, and a worker that now and then forgets to ack: every
    task is done, and by its id a second time is recognised."""
    done: dict[str, int] = {}
    wanted = {f"t{number}" for number in range(40)}
    road = Rough(client(clock), seed=7)
    async with own_queue(clock, client=road, fifo=is_fifo, max_attempts=100) as queue:
        for start in range(0, 40, 8):
            await put(queue, *sorted(wanted)[start : start + 8])
        while set(done) != wanted or await queue.len("work"):
            delivery = await queue.dequeue("work")
            if delivery is None:
                clock.advance(31)
                continue
            count = done[delivery.task.id] = done.get(delivery.task.id, 0) + 1
            if count > 1 or len(done) % 5:
                await queue.ack(delivery.claim)
        clock.advance(31)
        assert set(await drain(queue)) <= wanted
        assert await queue.dead("work") == []
    assert road.troubles
