"""boto3's client: the protocol that is used, how one is made, and its errors as outlast's.

Messages of AWS may contain parts of credentials (a canonical request, a key id), and so may a URL in an error of
botocore. So outlast's messages have operation, queue and error code only, and an error that could contain a secret
is not kept as ``__cause__``.

Calls of SQS in threads: boto3 blocks, and the event loop must not.

Each call has its own thread; the number of concurrent short calls is limited. The threads are daemons: a call that
hangs may take minutes, and Python joins the threads of its own executors before it exits. A message that arrives for
a caller that was cancelled, or for a closed queue, is returned at once, so that other processes need not wait for its
visibility timeout.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
)

from outlast.errors import (
    InvalidValue,
    NotFound,
    OutlastError,
    PayloadTooLarge,
    QueueClosed,
    StoreFault,
    TimedOut,
    Unavailable,
    UnknownOutcome,
)
from outlast.queues.sqs.message import ATTRIBUTES, NOTE, Message, received

Answer = dict[str, Any]

FOREIGN = (BotoCoreError, ClientError)
"""The exceptions of a client's call."""

_READS = {"get_queue_url", "get_queue_attributes", "receive_message", "create_queue"}
"""Idempotent calls: for them a lost response means that nothing was done."""

_MISSING = {"NonExistentQueue", "QueueDoesNotExist"}
_LATER = {
    "InternalError",
    "InternalFailure",
    "KmsThrottled",
    "OverLimit",
    "RequestThrottled",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
}
_TOO_LARGE = {"BatchRequestTooLong"}
_FORBIDDEN = {
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "NotAuthorized",
    "OptInRequired",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}


class Rejected(StoreFault):
    """SQS rejected the call, with a code that the caller may handle."""

    def __init__(self, text: str, error: ClientError) -> None:
        super().__init__(text)
        said = str(error)
        self.code = code_of(error)
        # The code is the same for all parameters and all that is wrong with them.
        self.hides_too_long = "VisibilityTimeout" in said and "limit" in said


class SqsClient(Protocol):
    """The part of ``boto3.client("sqs")`` that is used. It must be thread-safe, as clients of boto3 are."""

    def get_queue_url(self, **kwargs: Any) -> Answer: ...
    def create_queue(self, **kwargs: Any) -> Answer: ...
    def get_queue_attributes(self, **kwargs: Any) -> Answer: ...
    def send_message(self, **kwargs: Any) -> Answer: ...
    def send_message_batch(self, **kwargs: Any) -> Answer: ...
    def receive_message(self, **kwargs: Any) -> Answer: ...
    def delete_message(self, **kwargs: Any) -> Answer: ...
    def delete_message_batch(self, **kwargs: Any) -> Answer: ...
    def change_message_visibility(self, **kwargs: Any) -> Answer: ...
    def change_message_visibility_batch(self, **kwargs: Any) -> Answer: ...
    def close(self) -> None: ...


def make_client(region: str | None, endpoint: str | None, connections: int) -> SqsClient:
    """A client with boto3's own search for credentials and region."""
    if endpoint is not None:
        check_url(endpoint, "endpoint")
    # A long poll takes 20 s: an answer that takes longer than this will not come.
    config = Config(
        connect_timeout=5,
        read_timeout=30,
        max_pool_connections=connections,
        retries={"mode": "standard", "max_attempts": 4},
    )
    try:
        made: Any = boto3.client("sqs", region_name=region, endpoint_url=endpoint, config=config)
    except NoRegionError as error:
        raise InvalidValue(
            "SQS needs a region: SqsQueue(region='eu-central-1'), or your AWS configuration"
        ) from error
    except (*FOREIGN, ValueError) as error:
        raise InvalidValue(
            f"no client for SQS can be made ({type(error).__name__}): check region and endpoint"
        ) from None
    client: SqsClient = made
    return client


def check_url(url: str, what: str) -> str:
    """Reject text that is not a URL, and a URL with a password, which is not shown."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
        secret = "@" in parts.netloc
    except (ValueError, AttributeError, TypeError):
        raise InvalidValue(f"the {what} is not a URL: use https://host/…") from None
    if secret:
        raise InvalidValue(
            f"the {what} carries a user or password: leave them out, AWS takes credentials from "
            "your configuration"
        )
    if not good:
        raise InvalidValue(f"the {what} {url!r} is not a URL: use https://host/…")
    return url


def code_of(error: Exception) -> str:
    """The code by which AWS names an error; empty if the error is botocore's own."""
    if isinstance(error, ClientError):
        # Some have the name of the service before them, depending on the protocol.
        return str(error.response.get("Error", {}).get("Code", "")).rpartition(".")[2]
    return ""


def raise_ours(error: Exception, operation: str, queue: str) -> NoReturn:
    """Raise the outlast error for an error of botocore."""
    ours = _ours(error, operation, queue)
    raise ours from (None if _may_hold_secrets(error) else error)


def _ours(error: Exception, operation: str, queue: str) -> OutlastError:
    what = f"{operation} of SQS queue {queue!r}"
    code = code_of(error)
    if code in _MISSING:
        return NotFound("SQS queue", queue)
    if code in _TOO_LARGE:
        return PayloadTooLarge(f"{what}: SQS finds the message too large")
    if code in _FORBIDDEN:
        return StoreFault(f"{what} is not allowed ({code}): check credentials and permissions")
    if code in _LATER or _status(error) >= 500:
        return Unavailable(f"{what}: SQS takes no more work now ({code or 'no code'})")
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return InvalidValue(
            "no AWS credentials were found: set them up as for any AWS tool, or pass a client"
        )
    if isinstance(error, ParamValidationError):
        return InvalidValue(f"{what}: a parameter is not one that SQS takes")
    if isinstance(error, (ReadTimeoutError, ConnectionClosedError)) and operation not in _READS:
        return UnknownOutcome(f"{what}: the answer was lost ({type(error).__name__})")
    if isinstance(error, (ConnectionError, HTTPClientError)):
        return Unavailable(f"{what}: SQS cannot be reached ({type(error).__name__})")
    if isinstance(error, ClientError):
        return Rejected(f"{what} failed: {code}", error)
    return StoreFault(f"{what} failed: {type(error).__name__}")


def _status(error: Exception) -> int:
    if isinstance(error, ClientError):
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return 0


def _may_hold_secrets(error: Exception) -> bool:
    return isinstance(error, ClientError) or "@" in str(error)


MAX_CALLS = 16
BATCH = 10

Entry = dict[str, Any]


class SqsAddress(NamedTuple):
    """An SQS queue: its name for messages, and its URL."""

    name: str
    url: str

    @property
    def is_fifo(self) -> bool:
        """Whether it keeps order within groups."""
        return self.url.endswith(".fifo")


class Calls:
    """A client, called in threads. A client that was passed in is never closed."""

    def __init__(self, client: SqsClient | None, region: str | None, endpoint: str | None) -> None:
        self._given = client
        self._make = partial(make_client, region, endpoint, MAX_CALLS * 4)
        self._client = client
        self._room: asyncio.Semaphore | None = None
        self._polls: set[asyncio.Future[list[Message]]] = set()

    def open(self) -> None:
        """Create the client, if none was passed in."""
        if self._room is None:
            self._client = self._given or self._make()
            self._room = asyncio.Semaphore(MAX_CALLS)

    def close(self) -> None:
        """Calls in flight end by themselves; callers that wait for a message get `QueueClosed`."""
        room, self._room = self._room, None
        for poll in list(self._polls):
            if not poll.done():
                poll.set_exception(_closed())
        if room is not None and self._client is not None and self._given is None:
            self._client.close()

    def check_open(self) -> None:
        """Raise `QueueClosed` if it is closed."""
        self._open_room()

    def _open_room(self) -> asyncio.Semaphore:
        if self._room is None:
            raise _closed()
        return self._room

    async def call(
        self, operation: str, queue: str, *, timeout: float | None = None, **parameters: Any
    ) -> Answer:
        """Call an operation and return its response; errors as outlast's."""
        room = self._open_room()
        try:
            async with asyncio.timeout(timeout), room:
                return await in_thread(partial(self.do, operation, queue, parameters))
        except TimeoutError as late:
            if isinstance(late, OutlastError):
                raise
            text = f"{operation} of SQS queue {queue!r} took longer than {timeout} s"
            raise (TimedOut(text) if operation in _READS else UnknownOutcome(text)) from None

    async def batch(
        self,
        operation: str,
        place: SqsAddress,
        entries: list[Entry],
        *,
        timeout: float | None = None,
    ) -> list[Entry]:
        """Call a batch operation, ten entries at a time, and return the entries that failed."""
        failed: list[Entry] = []
        for start in range(0, len(entries), BATCH):
            some = [
                {"Id": str(number), **entry}
                for number, entry in enumerate(entries[start : start + BATCH])
            ]
            answer = await self.call(
                operation, place.name, timeout=timeout, QueueUrl=place.url, Entries=some
            )
            failed += [some[int(one["Id"])] for one in answer.get("Failed", ())]
        return failed

    async def receive(
        self,
        place: SqsAddress,
        *,
        seconds: int,
        wait: int = 0,
        count: int = 1,
        timeout: float | None = None,
    ) -> list[Message]:
        """Receive up to `count` messages, hidden for `seconds`; wait for one up to `wait` seconds."""
        self.check_open()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Message]] = loop.create_future()
        parameters = {
            "QueueUrl": place.url,
            "MaxNumberOfMessages": count,
            "VisibilityTimeout": seconds,
            "WaitTimeSeconds": wait,
            # The name by which all versions of boto3 know it.
            "AttributeNames": ATTRIBUTES,
            "MessageAttributeNames": [NOTE],
        }
        self._polls.add(answer)
        try:
            begin(partial(self._poll, place, parameters, loop, answer))
            async with asyncio.timeout(None if timeout is None else timeout + wait):
                return await answer
        except (asyncio.CancelledError, TimeoutError) as gone:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._return_later(place, answer.result())
            if isinstance(gone, asyncio.CancelledError):
                raise
            raise TimedOut(f"SQS queue {place.name!r} did not answer in {timeout} s") from None
        finally:
            self._polls.discard(answer)
            answer.cancel()

    def do(self, operation: str, queue: str, parameters: dict[str, Any]) -> Answer:
        """Call an operation in this thread, blocking; errors as outlast's."""
        try:
            answer: Answer = getattr(self._client, operation)(**parameters)
        except FOREIGN as error:
            raise_ours(error, operation, queue)
        return answer

    # -- in threads ---------------------------------------------------------------------------

    def _poll(
        self,
        place: SqsAddress,
        parameters: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[list[Message]],
    ) -> None:
        messages: list[Message] = []
        failure: Exception | None = None
        try:
            messages = received(self.do("receive_message", place.name, parameters))
        except OutlastError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - the waiter must be released
            failure = Unavailable(f"SQS queue {place.name!r}: {type(error).__name__}")

        def hand_over() -> None:
            if answer.done():
                self._return_later(place, messages)
            elif failure is not None:
                answer.set_exception(failure)
            else:
                answer.set_result(messages)

        try:
            loop.call_soon_threadsafe(hand_over)
        except RuntimeError:  # the loop has ended
            self._return(place, messages)

    def _return_later(self, place: SqsAddress, messages: list[Message]) -> None:
        if messages:
            with suppress(Unavailable):  # they come back when their visibility ends
                begin(partial(self._return, place, messages))

    def _return(self, place: SqsAddress, messages: list[Message]) -> None:
        # If it fails they come back when their visibility ends.
        for message in messages:
            with suppress(OutlastError):
                parameters = {
                    "QueueUrl": place.url,
                    "ReceiptHandle": message.handle,
                    "VisibilityTimeout": 0,
                }
                self.do("change_message_visibility", place.name, parameters)


def _closed() -> QueueClosed:
    return QueueClosed("this queue is closed: open it again, or close it later")


T = TypeVar("T")


def begin(work: Callable[[], object]) -> None:
    """Run a function in a daemon thread. `Unavailable` if no thread can be started."""
    try:
        threading.Thread(target=work, name="outlast-sqs", daemon=True).start()
    except RuntimeError as error:
        raise Unavailable(f"no thread could be started, so nothing was done: {error}") from None


async def in_thread(work: Callable[[], T]) -> T:
    """The result of a blocking function. After a cancellation the thread continues alone."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def hand_over(value: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as failure:  # noqa: BLE001 - the waiter must be released
            error = failure
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(hand_over, value, error)

    begin(run)
    return await answer
