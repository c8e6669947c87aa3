"""An app for programs without a loop: Ctrl-C, other threads, forks, and the end of all that."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

import outlast
from outlast import sync
from outlast.errors import Closed, InvalidValue, OutlastError, RunFailed, WorkflowMisuse

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


# -- the same API, blocking -------------------------------------------------------------------------


@sync.step
def doubles(number: int) -> int:
    return 2 * number


@sync.workflow
def counts(number: int) -> int:
    doubled = doubles(number)
    sync.publish(doubled=doubled)
    return doubled + sync.wait_for_signal(more)


more = sync.Signal("more", int)


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.server),
        pytest.param("redis", marks=pytest.mark.server),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store, which others may use too."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a.db"
    if request.param == "postgres":
        return os.environ["OUTLAST_TEST_POSTGRES"]
    base = os.environ["OUTLAST_TEST_REDIS"]
    return f"{base}{'&' if '?' in base else '?'}prefix=sync{uuid4().hex[:8]}"


def test_an_app_on_each_store(url: str) -> None:
    """Starts, messages, reads, iterators, queues and schedules, without a loop."""
    own = uuid4().hex[:8]
    with sync.App(url, workflows=[counts]) as app:
        run = app.start(counts(2), id=f"{own}-a")
        run.signal(more, 3)
        assert run.result(timeout=60) == 7
        assert run.query("doubled", int) == 4
        sequences = [event.sequence for event in run.events()]
        assert sequences == list(range(1, len(run.history()) + 1))
        many = app.start_many({f"{own}-{number}": counts(number) for number in (1, 2)})
        for one in many:
            one.signal("more", 1)
        assert [one.result(timeout=60) for one in many] == [3, 5]
        found = {view.id for view in app.client.find(workflow="counts")}
        assert {f"{own}-a", f"{own}-1", f"{own}-2"} <= found
        later = app.client.debounce(counts(1), key=own, quiet=600)
        assert later.status().status is outlast.Status.PENDING
        app.client.queues.change(own, concurrency=2)
        assert app.client.queues.get(own).concurrency == 2
        app.client.schedules.create(sync.Schedule(own, counts(1), every=86400))
        assert own in [one.name for one in app.client.schedules.list()]
        assert app.client.schedules.delete(own)
        assert later.delete(force=True)
        assert repr(run) == f"<run '{own}-a'>"


def test_a_client_without_code(tmp_path: Path) -> None:
    """It starts and reads; an app elsewhere runs what it started."""
    url = f"sqlite:///{tmp_path}/a.db"
    with sync.Client(url) as client:
        run = client.start("counts", [5], id="one")
        run.signal("more", 1)
        assert run.status().status is outlast.Status.PENDING
        with sync.App(url, workflows=[counts]):
            assert run.result(timeout=60) == 11
        assert client.list("workflow:counts").items[0].id == "one"
    with pytest.raises(Closed, match=r"with outlast\.sync\.Client\(…\) as client:"):
        client.count()


def test_many_threads_use_one_app() -> None:
    """Each waits for its own answer."""
    with sync.App("memory:", workflows=[counts]) as app:

        def work(number: int) -> int:
            run = app.start(counts(number))
            run.signal("more", number)
            return run.result(timeout=60)

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(work, range(20))) == [3 * number for number in range(20)]


def test_threads_that_open_one_app_at_once_open_it_once() -> None:
    """The second finds it open."""
    app = sync.App("memory:", workflows=[does_nothing])
    ready = threading.Barrier(4)

    def begin(_: int) -> str:
        ready.wait()
        app.open()
        return app.start(does_nothing()).result(timeout=60)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(begin, range(4))) == ["done"] * 4
    app.close()
    assert [one.name for one in threading.enumerate() if one.name == "outlast"] == []


async def test_an_app_inside_a_running_loop() -> None:
    """As in a notebook: the call blocks that loop, and is answered by the loop of the app."""
    with sync.App("memory:", workflows=[does_nothing]) as app:
        assert app.start(does_nothing()).result(timeout=60) == "done"
        assert [view.status for view in app.client.find()] == [outlast.Status.COMPLETED]
        assert app.client.queues.stats() is not None


def test_closing_twice_and_opening_again(tmp_path: Path) -> None:
    """What was started is there again."""
    app = sync.App(f"sqlite:///{tmp_path}/a.db", workflows=[counts])
    app.close()
    app.open()
    app.open()
    run = app.start(counts(1), id="one")
    app.close()
    app.close()
    with pytest.raises(Closed, match=r"with outlast\.sync\.App\(…\) as app:"):
        run.status()
    with app:
        app.get("one").signal("more", 1)
        assert app.get("one").result(timeout=60) == 3
        with pytest.raises(InvalidValue, match="open already"), app:
            pass
        assert app.get("one").status().result == 3


def test_an_iterator_that_is_left_early() -> None:
    """It can be closed, and closing the app does not wait for it."""
    with sync.App("memory:", workflows=[waits]) as app:
        run = app.start(waits(), id="one")
        following = run.events(follow=True)
        assert next(following).type == "workflow.started"
        following.close()  # type: ignore[attr-defined]  # a generator
        left = run.events(follow=True)
        next(left)
    with pytest.raises(Closed):
        next(left)


def test_a_generator_is_read_by_the_thread_that_passes_it() -> None:
    """It may use what belongs to that thread, such as a connection of Django."""
    threads: list[int] = []

    def calls() -> Iterator[outlast.Call[str]]:
        for _ in range(2):
            threads.append(threading.get_ident())
            yield does_nothing()

    with sync.App("memory:", workflows=[does_nothing]) as app:
        assert len(app.start_many(calls())) == 2
    assert set(threads) == {threading.get_ident()}


def test_an_app_that_cannot_open_leaves_no_thread(tmp_path: Path) -> None:
    """The error is the store's, and the app can be opened when its cause is gone."""
    app = sync.App(f"sqlite:///{tmp_path}/no/folder/a.db", workflows=[does_nothing])
    with pytest.raises(OutlastError):
        app.open()
    assert [one.name for one in threading.enumerate() if one.name == "outlast"] == []
    (tmp_path / "no" / "folder").mkdir(parents=True)
    with app:
        assert app.start(does_nothing()).result(timeout=60) == "done"


def test_runs_move_without_a_loop(tmp_path: Path) -> None:
    """`sync.move` has a loop of its own."""
    here, there = (f"sqlite:///{tmp_path}/{name}.db" for name in ("a", "b"))
    with sync.Client(here) as client:
        client.start("counts", [1], id="one")
    with sync.Client(there):
        pass
    assert sync.move(here, there).runs == 1
    with sync.Client(there) as client:
        assert client.get("one").status().workflow == "counts"


def test_functions_of_plain_workflows_are_refused_elsewhere() -> None:
    """The error names the function to use."""
    with pytest.raises(WorkflowMisuse, match=r"await outlast\.sleep\(…\)"):
        sync.sleep(1)


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
