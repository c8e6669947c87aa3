"""Which runs there are, what one has done, and why it is where it is."""

from __future__ import annotations

import asyncio
import shlex
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from outlast.cli.commands import doctor
from outlast.cli.commands.doctor import life_of
from outlast.cli.main import Exit
from outlast.model import Commit, Committed, Creation, Run, Task, Worker
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import ManualClock
from outlast.transfer.tombstone import moving_commit
from outlast.urls import resolve
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.stage import records


def test_ls_gives_programs_one_object_a_line(outlast: Invoke) -> None:
    """Piped, `ls` prints JSON with exact times, newest first, children included."""
    done = outlast("ls")
    assert done.exit_code == 0
    runs = records(done.stdout)
    assert {run["id"] for run in runs} >= {"order-done", "order-lost~child.pack"}
    created = [run["created_at"] for run in runs]
    assert created == sorted(created, reverse=True)
    assert all(moment.endswith("Z") for moment in created)


def test_ls_takes_a_query_in_any_number_of_words(outlast: Invoke) -> None:
    """The words of a query are one query, quoted or not."""
    for query in (["status:failed", "workflow:checkout"], ["status:failed and workflow:checkout"]):
        [run] = records(outlast("ls", *query).stdout)
        assert run["id"] == "order-lost"
    [run] = records(outlast("ls", "attr.tenant=acme", 'error~"timeout at"').stdout)
    assert run["id"] == "order-lost"


def test_ls_pages_by_cursor(outlast: Invoke) -> None:
    """A page that is not the last says how to get the next; together they are all."""
    everything = [run["id"] for run in records(outlast("ls").stdout)]
    seen: list[str] = []
    more: list[str] = []
    while True:
        done = outlast("ls", "-n", "3", *more)
        seen += [run["id"] for run in records(done.stdout)]
        if "--after" not in done.stderr:
            break
        more = ["--after", done.stderr.split("--after ")[1].strip()]
    assert seen == everything


def test_what_ls_says_goes_on_with_the_same_query(outlast: Invoke) -> None:
    """The line for the next page can be typed as it stands, whatever quotes the query has."""
    done = outlast("ls", "-n", "1", "attr.tenant='acme'", "not", 'id:"it\'s"')
    shell, command, query, option, _ = shlex.split(done.stderr.split(": ", 1)[1])
    assert (shell, command, option) == ("outlast", "ls", "--after")
    assert query == "attr.tenant='acme' not id:\"it's\""


def test_ls_counts_and_sorts(outlast: Invoke) -> None:
    """`--count` is a number and whether it is exact; `--sort` sorts, downwards with a dash."""
    assert records(outlast("ls", "--count", "status:failed").stdout) == [
        {"count": 2, "exact": True}
    ]
    ids = [run["id"] for run in records(outlast("ls", "--sort", "id").stdout)]
    assert ids == sorted(ids)
    assert [run["id"] for run in records(outlast("ls", "--sort", "-id").stdout)] == ids[::-1]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["ls", "statsu:failed"], "did you mean 'status'?\n  statsu:failed\n  ^"),
        (["ls", "--limit", "0"], "limit 0 is out of range"),
        (["ls", "--after", "nonsense!"], "is not a cursor"),
        (["ls", "--sort", "id", "-n", "-3"], "limit -3 is out of range"),
        (["ls", "--count", "-n", "10001"], "limit 10001 is out of range"),
        (["ls", "--sort", "id", "--after", "nonsense!"], "not with --sort id: omit --after"),
        (["db", "check", "-n", "-1"], "--limit is -1: use at least 1"),
        (["lss"], "there is no command 'lss', did you mean `outlast ls`?"),
        (["ls", "--store", "mysql://x"], "does not name a store"),
        (["ls", "--store", "sqlite:///nowhere.db"], "there is no store at nowhere.db"),
        (["signal", "order-waits", "go", "--value", "{oops}"], '--value is not JSON: Expecting property name enclosed in double quotes (line 1, column 2).\n  {oops}\n   ^'),
        (["signal", "order-waits", "go", "--value", "yes"], "Text is written with quotes"),
        (["start", "checkout", "--app", "shop", "--input", "[1]"], "--input is a list"),
        (["start", "checkout", "--app", "shop", "--attr", "a"], "write NAME=VALUE"),
        (["start", "checkout", "--app", "nothing"], "there is no module 'nothing'"),
        (["start", "checkout", "--app", "nothing.py"], "there is no file nothing.py"),
        (["start", "checkout", "--app", "shop:charge"], "not an outlast.App"),
        (["start", "checkout", "--app", "shop:gone"], "shop has no 'gone'"),
        (["start", "checkout", "--app", "shop", "--store", "memory:"], "chooses its own store"),
        (["start", "checkout"], "no app is named: pass MODULE:APP"),
        (["start", "checkout", "--app", "shop", "--input", '{"ordr": 1}'], "checkout(order: str, amount: int = 10)"),
        (["start", "checkout", "--app", "shop", "--input", '{"order": 1}'], "expected `str`, got `int`"),
        (["start", "checkout", "--app", "shop", "--input", "{}"], "missing a required argument: 'order'"),
        (["cancel"], "cancel needs either run ids or --where QUERY"),
        (["cancel", "order-waits", "--where", "status:open"], "not both"),
        (["cancel", "--where", " "], "--where is empty"),
        (["cancel", "--where", "status:open"], "add --yes"),
        (["cancel", "order-waits", "--dry-run"], "--dry-run needs --where"),
        (["fork", "order-done", "chrge"], "it has charge, 0/ship"),
        (["dead", "purge", "default"], "add --yes"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_says_what_to_type(
    outlast: Invoke, args: list[str], told: str
) -> None:
    """A sentence that says what to do, the exit code for a wrong call, and nothing changed."""
    before = outlast("ls").stdout
    done = outlast(*args)
    assert told in done.stderr
    assert done.exit_code == Exit.USAGE
    assert "Traceback" not in done.output
    assert outlast("ls").stdout == before


@pytest.mark.parametrize("text", ["[1\n", "\n", "[1,\n\n", "{\x0c", '"a\u2028'])
def test_json_that_ends_too_early_is_pointed_at(outlast: Invoke, text: str) -> None:
    """However its lines end, JSON from elsewhere that is not whole is told with its place."""
    done = outlast("signal", "order-waits", "go", "--value", "-", input=text)
    assert "--value is not JSON: " in done.stderr
    assert done.stderr.rstrip().endswith("^")
    assert done.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("created:9999-12-31", False),
        ("age>900000d", False),
        ("created>now+2921939d", False),
        ("created<=9999-12-31T23:59:59.999999", True),
    ],
)
def test_times_at_the_end_of_the_calendar(outlast: Invoke, query: str, found: bool) -> None:
    """A time that is far beyond all runs is before or after them, and no error."""
    done = outlast("ls", query)
    assert done.exit_code == 0
    assert bool(records(done.stdout)) is found


@pytest.mark.parametrize(
    ("args", "told", "code"),
    [
        (["show", "ordre-done"], "did you mean 'order-done'", Exit.NOT_FOUND),
        (["show", "zzz"], "`outlast ls` lists the runs", Exit.NOT_FOUND),
        (["show", "order"], "several ids start with 'order'; type more of the id:\n  order-done\n", Exit.NOT_FOUND),
        (["cancel", "order-done"], "'order-done' is completed", Exit.REFUSED),
        (["retry", "order-done"], "only a failed run can be retried", Exit.USAGE),
        (["rm", "order-waits"], "cancel it first, or remove it with --force", Exit.USAGE),
        (["start", "chekout", "--app", "shop"], "did you mean 'checkout'?", Exit.NOT_FOUND),
        (["start", "checkout", "--app", "shop", "--input", '{"order": "x"}', "--id", "order-done"], "exists already", Exit.REFUSED),
        (["ls", "--store", "redis://localhost:1"], "cannot be reached", Exit.UNREACHABLE),
        (["ls", "--store", "postgresql://localhost:1/x"], "cannot be reached", Exit.UNREACHABLE),
        (["ls", "--store", "sqlite:///shop.py"], "", Exit.DAMAGED),
    ],
)  # fmt: skip
def test_errors_have_their_exit_code(
    outlast: Invoke, args: list[str], told: str, code: Exit
) -> None:
    """What the store refuses or cannot find is told apart by the exit code."""
    done = outlast(*args)
    assert told in done.stderr
    assert done.exit_code == code
    assert isinstance(done.exception, SystemExit)


def test_a_run_is_found_by_the_beginning_of_its_id(outlast: Invoke) -> None:
    """As much of an id as makes it one of its kind is enough; a run comes before its children."""
    [run] = records(outlast("show", "order-l").stdout)
    assert run["id"] == "order-lost"


def test_show_gives_programs_the_tree(outlast: Invoke) -> None:
    """Steps with attempts, tasks, maps, children with their own steps, and compensation."""
    [run] = records(outlast("show", "order-lost").stdout)
    assert run["input"] == {"order": "lost"}
    parts = {part["key"]: part for part in run["parts"]}
    assert [*parts] == ["charge", "0", "1", "map:ship", "child:pack", "undo"]
    assert parts["charge"]["output"] == "paid 10"
    assert parts["0"]["kind"] == "task"
    assert parts["0"]["parts"][0]["name"] == "ship"
    assert parts["map:ship"]["note"] == "3 of 3"
    [ship] = parts["child:pack"]["parts"]
    assert [attempt.get("error") for attempt in ship["attempts"]] == [
        "ConnectionError: no answer",
        "RuntimeError: timeout at the carrier",
    ]
    assert parts["undo"]["parts"][0]["status"] == "completed"


def test_show_history_gives_the_events(outlast: Invoke) -> None:
    """The events as they are recorded, one a line."""
    events = records(outlast("show", "order-done", "--history").stdout)
    assert [event["sequence"] for event in events] == [*range(1, len(events) + 1)]
    assert events[0]["type"] == "workflow.started"
    assert events[-1]["data"]["output"] == {"receipt": "paid 10", "packed": "shipped done"}


def test_tail_goes_on_after_a_sequence_and_tells_how_the_run_ended(outlast: Invoke) -> None:
    """It ends with the run, with 7 if that failed, and begins where it is told to."""
    done = outlast("tail", "order-done", "--after", "3")
    assert done.exit_code == 0
    assert records(done.stdout)[0]["sequence"] == 4
    assert outlast("tail", "order-lost").exit_code == Exit.RUN_FAILED
    assert outlast("tail", "order-waits", "--no-follow").exit_code == 0
    changed = records(outlast("tail", "--no-follow", "--where", "status:open").stdout)
    assert {run["id"] for run in changed} == {"order-waits", "order-halts", "order-sleeps"}


def test_a_run_that_was_moved_is_not_said_to_have_been_cancelled(outlast: Invoke) -> None:
    """Whoever follows it is told where it is, and what to type there names that store."""
    there = "sqlite:///there.db"
    assert outlast("move", "--to", there, "id:order-waits", "--yes").exit_code == 0
    done = outlast("tail", "order-waits")
    assert f"was moved to {there}" in done.stderr
    assert done.exit_code == Exit.REFUSED
    [reason] = records(outlast("why", "order-waits", "--store", there).stdout)
    assert reason["commands"] == [f"outlast signal order-waits go --value JSON --store {there}"]
    assert outlast("tail", "order-waits", "--no-follow", "--store", there).exit_code == 0


def test_tail_leaves_no_change_out(outlast: Invoke) -> None:
    """It begins with the 200 that changed last, and goes on with every run that changes, however old."""

    async def crowd(*ids: str) -> None:
        async with resolve("sqlite:///many.db") as store:
            for id in ids:
                await store.commit([Commit(run_id=id, create=Run(id=id), creation=Creation.UPSERT)])

    def tail(*args: str) -> list[dict[str, Any]]:
        done = outlast("tail", "--no-follow", "--store", "sqlite:///many.db", *args)
        assert done.exit_code == 0, done.stderr
        return records(done.stdout)

    outlast("db", "upgrade", "--store", "sqlite:///many.db")
    names = [f"r{number:03}" for number in range(230)]
    asyncio.run(crowd(*names))
    first = tail()
    assert [run["id"] for run in first] == names[-200:]
    asyncio.run(crowd("r003", "r001"))
    changed = tail("--since", first[-1]["updated_at"])
    assert [run["id"] for run in changed][-2:] == ["r003", "r001"]
    assert len(tail("--since", "now-1h")) == 230
    done = outlast("tail", "--since", "soon")
    assert (done.exit_code, "'soon' is not a time" in done.stderr) == (Exit.USAGE, True)
    done = outlast("tail", "order-done", "--since", "now")
    assert done.exit_code == Exit.USAGE


def test_pages_go_on_in_every_order(outlast: Invoke) -> None:
    """By creation and by the last change, up and down: each run once. What is asked by the last change
    comes in that order. A cursor of one order is refused in another."""
    outlast("signal", "order-waits", "nothing")
    for sort in ("created", "-created", "updated", "-updated"):
        field = f"{sort.removeprefix('-')}_at"
        found: list[dict[str, Any]] = []
        done = outlast("ls", "-n", "3", "--sort", sort)
        while True:
            found += records(done.stdout)
            if "--after" not in done.stderr:
                break
            cursor = done.stderr.split("--after ")[1].split()[0]
            done = outlast("ls", "-n", "3", "--sort", sort, "--after", cursor)
        assert len(found) == len({run["id"] for run in found}) == 7
        places = [(run[field], run["id"]) for run in found]
        assert places == sorted(places, reverse=sort.startswith("-"))
    done = outlast("ls", "-n", "2", "updated>now-1d")
    places = [run["updated_at"] for run in records(done.stdout)]
    assert places == sorted(places, reverse=True)
    cursor = done.stderr.split("--after ")[1].split()[0]
    assert outlast("ls", "updated>now-1d", "--after", cursor).exit_code == 0
    refused = outlast("ls", "--sort", "created", "--after", cursor)
    assert (refused.exit_code, "cursor of the order" in refused.stderr) == (Exit.USAGE, True)
    refused = outlast("ls", "--sort", "id", "--after", cursor)
    assert (refused.exit_code, "not with --sort id" in refused.stderr) == (Exit.USAGE, True)


WHY = [
    ("order-done", "It completed at", "outlast show order-done"),
    ("order-lost", "A retry continues from 'child:pack'", "outlast retry order-lost"),
    ("order-waits", "It waits for the signal 'go' since", "outlast signal order-waits go --value JSON"),
    ("order-halts", "It waits for a person since", "outlast asks answer order-halts/"),
    ("order-sleeps", "It sleeps since", None),
]  # fmt: skip


@pytest.mark.parametrize(("run_id", "told", "command"), WHY)
def test_why_says_what_it_waits_for(
    outlast: Invoke, run_id: str, told: str, command: str | None
) -> None:
    """A sentence, and what to type to move it on."""
    [reason] = records(outlast("why", run_id).stdout)
    assert told in reason["why"]
    assert command is None or any(each.startswith(command) for each in reason["commands"])


def test_why_says_that_no_worker_has_the_code(outlast: Invoke) -> None:
    """A run that could go on and is not taken, and one that is paused."""
    assert (
        outlast(
            "start", "pack", "--app", "shop", "--input", '{"order": "x"}', "--id", "new"
        ).exit_code
        == 0
    )
    [reason] = records(outlast("why", "new").stdout)
    assert "no worker has claimed it: none with the code of 'pack' is running" in reason["why"]
    outlast("pause", "new")
    reasons = records(outlast("why", "new").stdout)
    assert (
        "1 message waits in its inbox until a worker with the code of 'pack' starts"
        in (reasons[-1]["why"])
    )


def test_doctor_finds_nothing_and_then_something(outlast: Invoke, shop: Path) -> None:
    """All is well: 0. A store that does not open: 1, with a remedy."""
    done = outlast("doctor")
    assert done.exit_code == 0
    assert "survives a loss of power" in done.stdout
    (shop / "broken.db").write_text("this is not a database, and long enough to be looked at" * 9)
    done = outlast("doctor", "--store", "sqlite:///broken.db")
    assert done.exit_code == Exit.FOUND
    assert records(done.stdout)[-1]["level"] == "problem"


def test_doctor_where_the_package_is_not_installed(
    outlast: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run from its source alone, it has no version to tell, and checks all else."""

    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", version)
    done = outlast("doctor")
    assert done.exit_code == 0
    assert "outlast (not installed: run from its source), Python" in done.stdout


def test_doctor_tells_of_the_dead_and_of_what_is_on_its_way(
    outlast: Invoke, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that fell silent is a warning, runs that a broken move has left are a problem."""

    async def leave_behind() -> None:
        async with SqliteStore(shop / "outlast.db") as store:
            await store.heartbeat(Worker(owner="app-1", host="there", pid=7, runs=2), 0.001)
            run = await store.get("order-sleeps")
            sealed = moving_commit(run, await store.contents(run.id), [], "sqlite:///other.db")
            assert isinstance((await store.commit([sealed]))[0], Committed)

    asyncio.run(leave_behind())
    done = outlast("doctor")
    assert done.exit_code == Exit.FOUND
    found = {one["what"]: one for one in records(done.stdout)}
    [dead] = [one for what, one in found.items() if "app-1" in what]
    assert dead["level"] == "warning"
    assert "on there (pid 7) sent its last heartbeat" in dead["what"]
    [sealed] = [one for what, one in found.items() if "being moved" in what]
    assert sealed["level"] == "problem"
    assert "outlast move --to sqlite:///other.db" in sealed["remedy"]
    [worker] = records(outlast("workers").stdout)
    assert (worker["owner"], worker["alive"], worker["runs"]) == ("app-1", False, 2)
    refused = outlast("rm", "order-sleeps")
    assert refused.exit_code == Exit.REFUSED
    assert "was moved to sqlite:///other.db" in refused.stderr
    assert outlast("signal", "order-sleeps", "go").exit_code == Exit.REFUSED
    moved = outlast("move", "--to", "sqlite:///other.db", "--yes", "status:failed")
    assert records(moved.stdout) == [{"moved": 3, "families": 2, "refused": 0}]
    assert outlast("doctor").exit_code == 0
    assert outlast("why", "order-sleeps", "--store", "sqlite:///other.db").exit_code == 0


async def test_doctor_tells_of_steps_that_nobody_serves() -> None:
    """A queued step that has been ready for minutes is a problem, until a worker serves its queue."""
    clock = ManualClock()
    async with MemoryStore(clock=clock) as store:
        task = Task(id="t", run_id="film", queue="gpu/render", step="render")
        await store.commit([Commit(run_id="film", create=Run(id="film"), tasks=(task,))])

        async def problems() -> list[str]:
            return [one.what async for one in life_of(store) if one.level == "problem"]

        assert await problems() == []
        clock.advance(120)
        [told] = await problems()
        assert "a step was put into queue gpu/render 2m ago" in told
        assert "run film" in told
        await store.heartbeat(Worker(owner="w", queues=("gpu/render",)), 600)
        assert await problems() == []


def test_db_check_and_upgrade(outlast: Invoke, shop: Path) -> None:
    """Every history is read; a store that is not there is made by `db upgrade` alone."""
    assert "0 problems" in outlast("db", "check").stderr
    assert outlast("db", "upgrade", "--store", "sqlite:///new.db").exit_code == 0
    assert (shop / "new.db").exists()
    assert outlast("ls", "--store", "sqlite:///new.db").exit_code == 0


def test_the_store_is_looked_for_in_order(
    outlast: Invoke, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option, the variable, pyproject.toml, the file of this folder; passwords are not shown."""
    for name in ("option", "variable", "settings"):
        outlast("db", "upgrade", "--store", f"sqlite:///{name}.db")
    (shop / "pyproject.toml").write_text('[tool.outlast]\nstore = "sqlite:///settings.db"\n')
    assert "settings.db" in outlast("db", "upgrade").stdout
    deeper = shop / "deeper"
    deeper.mkdir()
    monkeypatch.chdir(deeper)
    assert "settings.db" in outlast("db", "upgrade").stdout
    assert not any(deeper.iterdir())
    monkeypatch.chdir(shop)
    monkeypatch.setenv("OUTLAST_STORE", "sqlite:///variable.db")
    assert "variable.db" in outlast("db", "upgrade").stdout
    assert "option.db" in outlast("db", "upgrade", "--store", "sqlite:///option.db").stdout
    secret = outlast("ls", "--store", "postgresql://me:secret@localhost:1/x")
    assert "secret" not in secret.output
