"""SQS queues by name and by URL.

`QueueUrls` finds the SQS queue and the dead-letter queue of a name. `Location` parses the URL of a queue: by name,
``sqs://wakeups?region=eu-central-1``, or its own URL, ``sqs+https://sqs.eu-central-1.amazonaws.com/1234/wakeups``.
Options are `region`, `endpoint` (for another SQS than Amazon's) and ``create=true``. A URL has no credentials: AWS
tools find them elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from outlast.errors import InvalidId, InvalidValue, NotFound, Unsupported
from outlast.queues.sqs.client import Calls, SqsAddress, check_url

_name = re.compile(r"[A-Za-z0-9_-]{1,80}").fullmatch
FIFO = ".fifo"
FOURTEEN_DAYS = "1209600"


class QueueUrls:
    """Finds the URLs of queues; creates missing ones if `create`."""

    def __init__(
        self,
        calls: Calls,
        *,
        prefix: str,
        urls: Mapping[str, str] | None,
        fifo: bool,
        create: bool,
        dead_suffix: str | None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self._calls = calls
        self._prefix = prefix
        self._fifo = fifo
        self._create = create
        self.dead_suffix = dead_suffix
        self._attributes = {"MessageRetentionPeriod": FOURTEEN_DAYS, **(attributes or {})}
        self._known = {
            name: SqsAddress(name, _queue_url(url, name)) for name, url in (urls or {}).items()
        }

    async def of(self, queue: str, *, timeout: float | None = None) -> SqsAddress:
        """The SQS queue for a name."""
        self._calls.check_open()
        known = self._known.get(queue)
        if known is None:
            known = self._known[queue] = await self._find(queue, self._fifo, timeout)
        return known

    async def dead(self, queue: str, *, timeout: float | None = None) -> SqsAddress:
        """The dead-letter queue of a queue: of the same kind, as SQS requires."""
        if self.dead_suffix is None:
            raise Unsupported(
                "this queue leaves its dead letters to SQS (dead_suffix=None): look at them there"
            )
        source = await self.of(queue, timeout=timeout)
        name = f"{queue}{self.dead_suffix}"
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = await self._find(name, source.is_fifo, timeout)
        return known

    async def _find(self, queue: str, fifo: bool, timeout: float | None) -> SqsAddress:
        name = sqs_name(f"{self._prefix}{queue}", fifo)
        try:
            answer = await self._calls.call("get_queue_url", name, timeout=timeout, QueueName=name)
        except NotFound:
            if not self._create:
                raise
            attributes = {**self._attributes, **({"FifoQueue": "true"} if fifo else {})}
            answer = await self._calls.call(
                "create_queue", name, timeout=timeout, QueueName=name, Attributes=attributes
            )
        return SqsAddress(name, str(answer["QueueUrl"]))


def sqs_name(name: str, fifo: bool) -> str:
    """The name of a queue in SQS; `InvalidId` if SQS does not allow it."""
    plain = name.removesuffix(FIFO) if fifo else name
    full = plain + FIFO if fifo else plain
    if not _name(plain) or len(full) > 80:
        raise InvalidId(
            f"{full[:100]!r} is not a name for an SQS queue: use 1 to 80 of A-Z a-z 0-9 - _"
            + (", with .fifo at the end" if fifo else "")
        )
    return full


def _queue_url(url: str, name: str) -> str:
    check_url(url, f"URL of queue {name!r}")
    last = urlsplit(url).path.rpartition("/")[2]
    sqs_name(last, fifo=last.endswith(FIFO))
    return url


OPTIONS = ("region", "endpoint", "create")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class Location(NamedTuple):
    """The location of a queue."""

    queue: str
    url: str | None
    region: str | None
    endpoint: str | None
    create: bool

    @classmethod
    def of(cls, text: str) -> Location:
        """Parse a URL; `InvalidValue` or `InvalidId` if it is not an SQS location."""
        scheme, _, rest = text.partition("://")
        try:
            parts = urlsplit(text)
            pairs = parse_qsl(parts.query, strict_parsing=True) if parts.query else []
        except ValueError:
            raise InvalidValue(
                "the wake-up channel is not a URL: use sqs://queue?region=…"
            ) from None
        given = dict(pairs)
        wrong = sorted(set(given) - set(OPTIONS))
        if wrong or len(pairs) > len(given) or parts.fragment:
            raise InvalidValue(
                f"options of {scheme}:// are {', '.join(OPTIONS)}, each once: {wrong}"
            )
        if "@" in parts.netloc:
            raise InvalidValue(
                "the wake-up channel carries a user or password: leave them out, AWS takes credentials "
                "from your configuration"
            )
        create = given.get("create", "false")
        if create not in _BOOLEANS:
            raise InvalidValue(f"create={create!r}: use true or false")
        options = given.get("region"), given.get("endpoint"), _BOOLEANS[create]
        if scheme == "sqs":
            if parts.path not in ("", "/"):
                raise InvalidValue(f"{text!r}: use sqs://queue?region=…, or sqs+https://host/…")
            return cls(sqs_name(parts.netloc, fifo=False), None, *options)
        if options[2]:
            raise InvalidValue(f"{scheme}:// names a queue that is there: leave out `create`")
        url = check_url(
            f"{scheme.removeprefix('sqs+')}://{rest.partition('?')[0]}", "wakeup_channel"
        )
        name = parts.path.rpartition("/")[2]
        return cls(sqs_name(name, fifo=name.endswith(".fifo")), url, *options)
