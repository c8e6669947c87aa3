"""boto3's client: the protocol that is used, how one is made, and its errors as outlast's.

Messages of AWS may contain parts of credentials (a canonical request, a key id), and so may a URL in an error of
botocore. So outlast's messages have operation, queue and error code only, and an error that could contain a secret
is not kept as ``__cause__``.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol
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
    StoreFault,
    Unavailable,
    UnknownOutcome,
)

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
