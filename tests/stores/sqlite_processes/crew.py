"""Crew: processes that begin together, answer through pipes, and can be killed.

They are forked from a server that has loaded the package and nothing else runs in, so that a new
one costs milliseconds, and that a test process with threads of its own is never forked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import ForkServerProcess
from typing import Any

_context = get_context("forkserver")
_context.set_forkserver_preload(["outlast.app", "outlast.stores.sqlite", "outlast.testkit.checker"])


class Member:
    """One process and our end of its pipe."""

    def __init__(self, job: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.pipe, theirs = _context.Pipe()
        self.process: ForkServerProcess = _context.Process(target=_work, args=(theirs, job, args))
        self.process.start()
        theirs.close()  # so that its death is the end of the pipe

    def kill(self) -> None:
        """`kill -9`, and wait until it is gone."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Crew:
    """Some processes. Each is given its end of a pipe first: it sends "ready", waits for the word
    to go, and what it returns is its answer."""

    def __init__(self) -> None:
        self.members: list[Member] = []

    def hire(self, job: Callable[..., Any], *args: Any) -> Member:
        """Start a process that runs ``job(pipe, *args)``."""
        member = Member(job, args)
        self.members.append(member)
        return member

    def start_together(self) -> None:
        """Wait until all are ready, then let all go."""
        for member in self.members:
            assert member.pipe.recv() == "ready"
        for member in self.members:
            member.pipe.send("go")

    def answer_of(self, member: Member) -> Any:
        """What its job returned."""
        return member.pipe.recv()

    def dismiss(self) -> None:
        """Wait until all have ended."""
        for member in self.members:
            member.process.join()
            member.pipe.close()


def pause_for(seconds: float) -> None:
    """Let others have the lock; never a way to wait for something to happen."""
    threading.Event().wait(seconds)


def _work(pipe: Pipe, job: Callable[..., Any], args: tuple[Any, ...]) -> None:
    pipe.send(job(pipe, *args))
