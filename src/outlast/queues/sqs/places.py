"""Which SQS queue a name of ours stands for, and where its dead letters go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from outlast.errors import InvalidId, NotFound, Unsupported
from outlast.model.ids import check_name
from outlast.queues.sqs.calls import Calls, Place
from outlast.queues.sqs.client import check_url

_name = re.compile(r"[A-Za-z0-9_-]{1,80}").fullmatch
FIFO = ".fifo"
FOURTEEN_DAYS = "1209600"


class Places:
    """Finds the URLs of queues, and creates those that are missing if that is wanted."""

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
            name: Place(name, _queue_url(url, name)) for name, url in (urls or {}).items()
        }

    async def of(self, queue: str, *, timeout: float | None = None) -> Place:
        """The SQS queue for a name."""
        check_name(queue, "queue name")
        self._calls.check_open()
        known = self._known.get(queue)
        if known is None:
            known = self._known[queue] = await self._find(queue, self._fifo, timeout)
        return known

    async def dead(self, queue: str, *, timeout: float | None = None) -> Place:
        """The SQS queue of the dead letters of a queue: of the same kind, as SQS wants it."""
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

    async def _find(self, queue: str, fifo: bool, timeout: float | None) -> Place:
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
        return Place(name, str(answer["QueueUrl"]))


def sqs_name(name: str, fifo: bool) -> str:
    """The name that SQS knows a queue by; `InvalidId` if SQS does not allow it."""
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
