"""A client of SQS on a rough road: messages are doubled, overtaken, delayed and, if wanted, lost."""

from __future__ import annotations

import random
import threading
from typing import Any

from outlast.queues.sqs.client import Answer, SqsClient


class Rough:
    """What SQS may do, done often. `loses` is for wake-up channels: SQS itself does not lose messages.

    A doubled message is one that is sent twice. A delayed one is received and shown again, as if the
    one who received it had not answered; what comes after it overtakes it.
    """

    def __init__(self, inner: SqsClient, *, seed: int, loses: bool = False) -> None:
        self._inner = inner
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._loses = loses
        self.troubles: dict[str, int] = {}

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._inner, operation)

    def send_message(self, **parameters: Any) -> Answer:
        """Send once, twice or not at all."""
        if self._loses and self._strikes("lost"):
            return {"MessageId": "lost"}
        if self._strikes("doubled"):
            self._inner.send_message(**parameters)
        return self._inner.send_message(**parameters)

    def send_message_batch(self, **parameters: Any) -> Answer:
        """Send once or twice."""
        if self._strikes("doubled"):
            self._inner.send_message_batch(**parameters)
        return self._inner.send_message_batch(**parameters)

    def receive_message(self, **parameters: Any) -> Answer:
        """Receive in another order; sometimes a message is not handed over and comes later."""
        answer = self._inner.receive_message(**parameters)
        found = answer.get("Messages", [])
        with self._lock:
            self._random.shuffle(found)
        late = [one for one in found if self._strikes("delayed")]
        for message in late:
            self._inner.change_message_visibility(
                QueueUrl=parameters["QueueUrl"],
                ReceiptHandle=message["ReceiptHandle"],
                VisibilityTimeout=0,
            )
        return {**answer, "Messages": [one for one in found if one not in late]}

    def _strikes(self, trouble: str) -> bool:
        with self._lock:
            strikes = self._random.random() < 0.3
            if strikes:
                self.troubles[trouble] = self.troubles.get(trouble, 0) + 1
            return strikes
