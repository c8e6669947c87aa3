"""Starting, sending, controlling and removing runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from outlast.cli import bulk
from outlast.cli.main import Exit
from outlast.cli.session import client_of
from outlast.model.commit import Commit
from outlast.model.run import Run
from outlast.ports.store import Store
from outlast.query import all_matching
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.stage import records


def status_of(outlast: Invoke, run_id: str) -> str:
    """Where a run stands."""
    return str(records(outlast("show", run_id).stdout)[0]["status"])


def test_start_leaves_a_run_to_a_worker(outlast: Invoke) -> None:
    """Without --wait nothing runs here: the run is pending, with its attributes."""
    done = outlast(
        "start", "checkout", "--app", "shop:app", "--input", '{"order": "new"}', "--id", "new",
        "--attr", "tenant=globex", "--attr", "size=5",
    )  # fmt: skip
    assert records(done.stdout) == [{"id": "new", "new": True}]
    [run] = records(outlast("ls", "id:new").stdout)
    assert run["status"] == "pending"
    assert run["attributes"] == {"tenant": "globex", "size": 5}


def test_start_with_a_signal(outlast: Invoke) -> None:
    """The signal is there with the run; a run that has the id gets the next one."""
    start = ["start", "checkout", "--app", "shop:app", "--input", '{"order": "x"}', "--id", "s"]
    assert records(outlast(*start, "--signal", "go=1").stdout) == [{"id": "s", "new": True}]
    assert records(outlast(*start, "--signal", "go").stdout) == [{"id": "s", "new": False}]
    assert outlast(*start).exit_code != 0


def test_start_and_wait_runs_it_here(outlast: Invoke, shop: Path) -> None:
    """With --wait the app runs here until the run has ended; its failure is exit code 7."""
    (shop / "order.json").write_text('{"order": "quick", "amount": 3}')
    done = outlast("start", "checkout", "--app", "shop.py", "--input", "@order.json", "--wait")
    assert done.exit_code == 0
    [outcome] = records(done.stdout)
    assert outcome["result"] == {"receipt": "paid 3", "packed": "shipped quick"}
    done = outlast(
        "start", "checkout", "--app", "shop", "--input", "-", "--wait", input='{"order": "lost"}'
    )
    assert done.exit_code == Exit.RUN_FAILED
    assert "timeout at the carrier" in done.stderr
    done = outlast(
        "start", "checkout", "--app", "shop", "--input", '{"order": "waits"}', "--wait",
        "--timeout", "0.2",
    )  # fmt: skip
    assert done.exit_code == Exit.TIMED_OUT


def test_start_and_wait_runs_nothing_else(outlast: Invoke) -> None:
    """What others have put into the store waits for a worker; the children of the run are its own."""
    outlast("start", "pack", "--app", "shop:app", "--input", '{"order": "new"}', "--id", "other")
    done = outlast(
        "start",
        "checkout",
        "--app",
        "shop",
        "--input",
        '{"order": "quick"}',
        "--id",
        "mine",
        "--wait",
    )
    assert done.exit_code == 0
    assert status_of(outlast, "mine") == "completed"
    assert status_of(outlast, "other") == "pending"


def test_an_app_may_be_made_by_a_function_that_takes_the_store(outlast: Invoke) -> None:
    """`module:function` gets the URL that is meant."""
    outlast("db", "upgrade", "--store", "sqlite:///other.db")
    done = outlast(
        "start", "pack", "--app", "shop:make", "--store", "sqlite:///other.db", "--input",
        '{"order": "x"}', "--wait",
    )  # fmt: skip
    assert records(done.stdout)[0]["result"] == "shipped x"
    assert len(records(outlast("ls", "--store", "sqlite:///other.db").stdout)) == 1


def test_signals_reach_a_run_and_updates_are_answered(outlast: Invoke) -> None:
    """A signal waits in the inbox; an update without a worker is told after its time."""
    assert outlast("signal", "order-waits", "go", "--value", "[1]").exit_code == 0
    assert "1 message waits" in outlast("why", "order-waits").stdout
    done = outlast("update", "order-waits", "add", "--value", "1", "--timeout", "0.1")
    assert done.exit_code == Exit.TIMED_OUT
    assert "has no answer after" in done.stderr


def test_terminate_retry_and_rm(outlast: Invoke) -> None:
    """Each acts at once, and says what it did."""
    assert outlast("terminate", "order-waits", "--reason", "no longer wanted").exit_code == 0
    assert status_of(outlast, "order-waits") == "cancelled"
    [told] = records(outlast("retry", "order-lost").stdout)
    assert told == {"id": "order-lost", "did": "retry", "told": "from child:pack"}
    assert status_of(outlast, "order-lost") == "pending"
    assert outlast("rm", "order-done", "order-waits").exit_code == 0
    assert outlast("rm", "order-halts", "--force").exit_code == 0
    left = {run["id"] for run in records(outlast("ls", "parent:''").stdout)}
    assert left == {"order-lost", "order-sleeps"}


def test_fork_begins_another_run_with_the_same_past(outlast: Invoke) -> None:
    """A fork shares history up to a step; with the code at hand, its input can be another."""
    done = outlast("fork", "order-done", "child:pack", "--id", "again")
    assert records(done.stdout) == [{"id": "again", "step": "child:pack"}]
    done = outlast(
        "fork", "order-done", "charge", "--id", "dearer", "--app", "shop", "--input",
        '{"amount": 99}',
    )  # fmt: skip
    assert done.exit_code == 0
    assert records(outlast("show", "dearer").stdout)[0]["input"] == {"order": "done", "amount": 99}


def test_bulk_actions_can_be_looked_at_first_and_repeated(outlast: Invoke) -> None:
    """--dry-run shows which and changes nothing; --yes does it; doing it again finds nothing."""
    before = outlast("ls").stdout
    done = outlast("terminate", "--where", "status:open", "--dry-run")
    assert {run["id"] for run in records(done.stdout)} == {
        "order-waits",
        "order-halts",
        "order-sleeps",
    }
    assert "3 in total; nothing was changed" in done.stderr
    done = outlast("resume", "--where", "workflow:checkout", "--dry-run")
    would = {run["id"]: run["would"] for run in records(done.stdout)}
    assert (would["order-halts"], would["order-done"]) == ("resume", "refuse")
    assert "would refuse; nothing was changed" in done.stderr
    assert outlast("ls").stdout == before
    done = outlast("terminate", "--where", "status:open", "--yes")
    assert "3 runs match in sqlite:///outlast.db" in done.stderr
    assert "terminate: 3 done" in done.stderr
    again = outlast("terminate", "--where", "status:open", "--yes")
    assert "0 runs match" in again.stderr
    assert again.exit_code == 0


def test_a_bulk_action_tells_who_refused_and_does_the_others(outlast: Invoke) -> None:
    """Runs that are past it are counted and told; the exit code says that there were some."""
    done = outlast("retry", "--where", "workflow:checkout status:ended", "--yes")
    assert done.exit_code == Exit.REFUSED
    assert "only a failed run can be retried" in done.stderr
    assert "1 refused" in done.stderr
    assert "1 done" in done.stderr
    assert status_of(outlast, "order-lost") == "pending"


def test_rm_spares_the_id_that_has_a_new_life(
    outlast: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between being found and being removed, a run may be begun anew or go on: it is not removed."""

    async def nothing(*_: object) -> AsyncIterator[Run]:
        return
        yield

    async def slowly(store: Store, *args: Any, **more: Any) -> AsyncIterator[Run]:
        runs = [run async for run in all_matching(store, *args, **more)]
        # Meanwhile: one goes on from where it failed, one is gone and its id begins anew.
        await client_of(store).get("order-lost").retry()
        await store.delete("order-done")
        again = Run(id="order-done", workflow="checkout")
        await store.commit([Commit(run_id=again.id, create=again)])
        for run in runs:
            yield run

    monkeypatch.setattr(bulk, "all_matching", slowly)
    monkeypatch.setattr(bulk, "_first", nothing)
    done = outlast("rm", "--where", "workflow:checkout status:ended", "--yes")
    assert done.exit_code == Exit.REFUSED
    assert "order-done: run 'order-done' has been replaced since the search" in done.stderr
    assert "2 refused" in done.stderr
    left = {run["id"] for run in records(outlast("ls").stdout)}
    assert {"order-done", "order-lost"} <= left


def test_queues_and_dead_tasks(outlast: Invoke) -> None:
    """What is ready and what is dead; redriving and purging say how many."""
    assert records(outlast("queues").stdout) == [
        {"queue": "default", "ready": 0, "dead": 0, "workers": 0}
    ]
    assert [one["queue"] for one in records(outlast("queues", "b", "a").stdout)] == ["a", "b"]
    assert outlast("dead", "ls").stdout == ""
    assert records(outlast("dead", "redrive", "default").stdout) == [
        {"queue": "default", "redriven": 0}
    ]
    assert records(outlast("dead", "purge", "default", "--yes").stdout) == [
        {"queue": "default", "purged": 0}
    ]


@pytest.mark.parametrize(
    ("args", "told", "code"),
    [
        (["--to", "sqlite:///outlast.db"], "are both sqlite:///outlast.db", Exit.USAGE),
        (["--to", "nowhere"], "does not name a store", Exit.USAGE),
        (["--to", "postgresql://me:secret@localhost:1/x"], "cannot be reached", Exit.UNREACHABLE),
        (["--from", "sqlite:///missing.db", "--to", "sqlite:///b.db"], "no store at", Exit.USAGE),
        (["--to", "sqlite:///b.db", "statsu:open"], "did you mean 'status'?", Exit.USAGE),
        (["--to", "sqlite:///b.db"], "add --yes", Exit.USAGE),
        ([], "--to", Exit.USAGE),
    ],
)
def test_a_move_that_cannot_be_changes_nothing(
    outlast: Invoke, args: list[str], told: str, code: Exit
) -> None:
    """The same store, none, one that is not there or does not answer, nobody to ask: a sentence, an
    exit code, and all runs are where they were."""
    before = outlast("ls").stdout
    done = outlast("move", *args)
    assert done.exit_code == code, done.stderr
    assert told in done.stderr
    assert "secret" not in done.stdout + done.stderr
    assert outlast("ls").stdout == before


def test_a_dry_move_only_shows(outlast: Invoke, shop: Path) -> None:
    """What would be moved, and nothing is, nor is the target made; then what is moved is told of
    once more by `ls`."""
    would = records(outlast("move", "--to", "sqlite:///b.db", "--dry-run", "status:failed").stdout)
    assert {one["id"] for one in would} == {"order-lost", "order-lost~child.pack"}
    assert not (shop / "b.db").exists()
    assert outlast("move", "--to", "nowhere", "--dry-run").exit_code == Exit.USAGE
    moved = outlast("move", "--to", "sqlite:///b.db", "--yes", "id:order-done", "--json")
    assert records(moved.stdout) == [{"moved": 2, "families": 1, "refused": 0}]
    [left] = records(outlast("ls", "wait:moved").stdout)
    assert left["id"] == "order-done"
    [why] = records(outlast("why", "order-done").stdout)
    assert "It was moved to sqlite:///b.db" in why["why"]
