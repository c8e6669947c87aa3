"""Threads for the calls of SQS, where there is no room for another one."""

from __future__ import annotations

import threading

import pytest

from outlast.errors import Unavailable
from outlast.queues.sqs.client import begin, in_thread


@pytest.mark.proves("I23")
async def test_no_room_for_a_thread_is_told_as_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who listens or sends goes on later; an error of Python's own would end the listener for good."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(Unavailable, match="nothing was done"):
        await in_thread(lambda: None)
    with pytest.raises(Unavailable, match="nothing was done"):
        begin(lambda: None)
