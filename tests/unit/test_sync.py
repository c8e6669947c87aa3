"""An app for programs without a loop: Ctrl-C, other threads, forks, and the end of all that."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

import outlast
from outlast import sync
from outlast.errors import Closed, RunFailed

TOUCHED = """
import os, signal, sys
from outlast import sync

@sync.step
def presses() -> None:
    os.kill(os.getpid(), signal.SIGINT)

@sync.workflow
def waits() -> None:
    presses()
    sync.wait_for_signal("never")

with sync.App(sys.argv[1], workflows=[waits]) as app:
    app.start(waits(), id="a").result()
"""


@sync.workflow
def waits() -> str:
    return sync.wait_for_signal("go", str)


@outlast.workflow
async def does_nothing() -> str:
    return "done"


def test_ctrl_c_ends_a_program_without_a_word_of_ours(tmp_path: Path) -> None:
    """Whoever waits for a result is interrupted; nothing is left on the loop that is closed then."""
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-c", TOUCHED, f"sqlite:///{tmp_path}/a.db"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode in (130, -2)
    assert ended.stderr.strip().endswith("KeyboardInterrupt")
    assert "destroyed" not in ended.stderr
    assert "ignored" not in ended.stderr


def test_who_waits_while_another_thread_closes_is_told() -> None:
    """It does not wait for ever."""
    app = sync.App("memory:", workflows=[waits])
    app.open()
    run = app.start(waits())
    told: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            run.result()
        except Closed as error:
            told.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    waiting.wait()
    app.close()
    thread.join(20)
    assert len(told) == 1


def test_an_open_app_in_a_forked_child(tmp_path: Path) -> None:
    """Calls say what to do, closing does not hang, and the parent does not notice."""
    with sync.App(f"sqlite:///{tmp_path}/a.db", workflows=[does_nothing]) as app:
        receiving, sending = os.pipe()
        with warnings.catch_warnings():
            # Python itself warns of forking with threads: that is what is tried here.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                app.start(does_nothing())
            except Closed as error:
                os.write(sending, str(error).encode())
            app.close()
            os._exit(0)
        os.close(sending)
        _, status = os.waitpid(child, 0)
        with os.fdopen(receiving) as answer:
            assert "open apps after the fork" in answer.read()
        assert status == 0
        assert app.start(does_nothing()).result(timeout=20) == "done"


def test_an_app_that_was_made_before_a_fork_is_opened_after_it(tmp_path: Path) -> None:
    """As servers do it that fork their workers: each opens its own."""
    app = sync.App(f"sqlite:///{tmp_path}/a.db", workflows=[does_nothing])
    children = []
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            with app:
                done = app.start(does_nothing()).result(timeout=20) == "done"
            os._exit(0 if done else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


def test_an_async_step_that_calls_the_app_on_whose_loop_it_runs() -> None:
    """It would wait for itself, and everybody else for it."""

    @outlast.step
    async def calls() -> str:
        return app.start(does_nothing()).id

    @outlast.workflow
    async def wrong() -> str:
        return await calls()

    app = sync.App("memory:", workflows=[wrong, does_nothing])
    with app, pytest.raises(RunFailed, match="Make the step a plain `def`"):
        app.start(wrong()).result(timeout=20)
