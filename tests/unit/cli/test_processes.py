"""Every command in a process of its own, as a script calls it: piped, with its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from outlast.cli.main import COMMANDS, Exit
from tests.unit.cli.stage import COMMAND, environment, heed_signals, piped, records

START = ["--app", "shop:app", "--input"]

# Each command once, with what its output has in it.
CALLS: dict[str, tuple[list[str], str]] = {
    "start": (["start", "pack", *START, '{"order": "x"}', "--wait"], '"result":"shipped x"'),
    "ls": (["ls", "status:failed"], '"id":"order-lost"'),
    "show": (["show", "order-done"], '"parts":['),
    "tail": (["tail", "order-done"], '"type":"workflow.completed"'),
    "why": (["why", "order-waits"], "It waits for the signal"),
    "signal": (["signal", "order-waits", "go"], '"sent":true'),
    "cancel": (["cancel", "order-waits"], '"did":"cancel"'),
    "terminate": (["terminate", "order-waits"], '"did":"terminate"'),
    "pause": (["pause", "order-sleeps"], '"did":"pause"'),
    "resume": (["resume", "order-halts", "--value", "true"], '"did":"resume"'),
    "retry": (["retry", "order-lost"], '"did":"retry"'),
    "fork": (["fork", "order-done", "charge", "--id", "forked"], '{"id":"forked"'),
    "rm": (["rm", "order-done"], '"did":"rm"'),
    "queues": (["queues"], '"queue":"default"'),
    "queue": (["queue", "show", "mail"], '"queue":"mail"'),
    "workers": (["workers"], ""),
    "move": (["move", "--to", "sqlite:///other.db", "--yes"], '{"moved":7,"families":5,"refused":0}'),
    "dead": (["dead", "redrive", "default"], '"redriven":0'),
    "export": (["export", "order-done"], '{"end":{"lines":'),
    "db": (["db", "check", "-n", "2"], ""),
    "asks": (["asks", "ls"], ""),
    "doctor": (["doctor"], '"level":"ok"'),
    "completion": (["completion", "zsh"], "#compdef outlast"),
}  # fmt: skip
# These run until they are told to stop, need something made before, or another process beside.
ELSEWHERE = {"worker", "dev", "update", "import", "replay", "schedules"}


def test_every_command_is_tested_in_a_process() -> None:
    """A new command has to be given its place here."""
    assert set(CALLS) | ELSEWHERE == set(COMMANDS)


@pytest.mark.parametrize("command", CALLS)
def test_command(shop: Path, command: str) -> None:
    """It does what it says, prints JSON alone, and exits with 0."""
    args, shown = CALLS[command]
    done = piped(shop, *args)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if command != "completion":
        records(done.stdout)


def test_the_console_script() -> None:
    """`outlast` is installed beside Python, and tells the version that was installed."""
    script = Path(sys.executable).with_name("outlast")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"outlast {version('outlast')}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    """Each command shows how it is called."""
    from click.testing import CliRunner

    from outlast.cli.main import cli

    groups = {"asks": "ls", "dead": "ls", "db": "check", "queue": "show", "schedules": "ls"}
    commands = [command, groups[command]] if command in groups else [command]
    shown = CliRunner().invoke(cli, [*commands, "--help"]).stdout
    assert f"\n    outlast {command}" in shown.replace('eval "$(', "") or "$(outlast" in shown


def test_export_import_replay_and_the_debugger(shop: Path) -> None:
    """A run leaves one store for another, and is replayed under the debugger without effects."""
    assert piped(shop, "export", "order-done", "-o", "done.outlast").returncode == 0
    assert piped(shop, "import", "done.outlast", "--store", "sqlite:///b.db").returncode == 0
    done = piped(
        shop, "replay", "done.outlast", "--app", "shop", "--break-at", "map:ship",
        input="p 'receipt is', receipt\nc\n",
    )  # fmt: skip
    assert "('receipt is', 'paid 10')" in done.stdout, done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("keys", ["n\nn\n", "b 28\nc\n"])
@pytest.mark.parametrize("step", ["charge", "0/ship"])
def test_the_debugger_steps_through_the_users_code(shop: Path, step: str, keys: str) -> None:
    """From a call, and from a call that the workflow waits for: the next line is one of the workflow's.
    To quit is no fault of the run."""
    assert piped(shop, "export", "order-done", "-o", "done.outlast").returncode == 0
    done = piped(
        shop, "replay", "done.outlast", "--app", "shop", "--break-at", step,
        input=f"{keys}p 'receipt is', receipt\nq\n",
    )  # fmt: skip
    assert "('receipt is', 'paid 10')" in done.stdout, done.stdout + done.stderr
    stops = [line for line in done.stdout.splitlines() if line.startswith("> ")]
    assert stops
    assert all("shop.py" in line for line in stops)
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_is_no_error(shop: Path) -> None:
    """Whoever reads the output may stop reading: no traceback, exit code 141."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [*COMMAND, "ls"], cwd=shop, env=environment(), stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    _, told = process.communicate(timeout=60)
    assert told == b""
    assert process.returncode == Exit.PIPE_CLOSED


def test_a_worker_runs_what_is_there_and_is_stopped_by_sigterm(shop: Path) -> None:
    """It takes runs, answers updates, hands back what is under way, and exits with 0."""
    piped(shop, "start", "counter", *START, '{"start": 40}', "--id", "counting")
    worker = subprocess.Popen(
        [*COMMAND, "worker", "shop:app"],
        cwd=shop,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert worker.stderr is not None
    try:
        assert "running checkout, counter, pack" in worker.stderr.readline()
        done = piped(shop, "update", "counting", "add", "--value", "2")
        assert records(done.stdout) == [{"id": "counting", "update": "add", "answer": 42}]
        [known] = records(piped(shop, "workers").stdout)
        assert (known["alive"], known["pid"]) == (True, worker.pid)
        assert known["workflows"] == ["checkout", "counter", "pack"]
        piped(shop, "signal", "counting", "stop")
        done = piped(shop, "tail", "counting")
        assert done.returncode == 0
        assert records(done.stdout)[-1]["type"] == "workflow.completed"
        worker.send_signal(signal.SIGTERM)
        assert "stopped" in worker.stderr.read()
        assert worker.wait(30) == 0
        assert piped(shop, "workers").stdout == ""
    finally:
        worker.kill()
        worker.wait()
        worker.stderr.close()


STUBBORN = """
import threading
import outlast

@outlast.step
def stubborn() -> None:
    print("begun", flush=True)
    threading.Event().wait()

@outlast.workflow
async def never_ends() -> None:
    await stubborn()

app = outlast.App("sqlite:///stubborn.db", workflows=[never_ends], lease=2)
"""


@pytest.mark.parametrize("command", ["worker", "dev"])
def test_a_step_in_a_thread_does_not_keep_a_process_from_ending(
    tmp_path: Path, command: str
) -> None:
    """It cannot be stopped: its run is handed back, and the process ends without it."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    start = ["start", "never_ends", "--app", "stubborn:app"]
    done = piped(tmp_path, *start, "--id", "r")
    assert done.returncode == 0, done.stderr
    process = subprocess.Popen(
        [*COMMAND, command, "stubborn:app"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_signals,  # noqa: PLW1509
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM if command == "worker" else signal.SIGHUP)
        _, told = process.communicate(timeout=30)
        assert "stopped" in told
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


SLOW = """
import asyncio
from pathlib import Path
import outlast

@outlast.step(at_most_once=True)
async def slow() -> str:
    print("begun", flush=True)
    while not Path("let-go").exists():
        await asyncio.sleep(0.05)
    return "sent"

@outlast.workflow
async def mails() -> str:
    return await slow()

app = outlast.App("sqlite:///slow.db", workflows=[mails], lease=2)
"""


@pytest.mark.proves("I30")
@pytest.mark.parametrize("hurries", [False, True], ids=["drains", "hurries"])
def test_a_worker_that_is_told_to_stop_lets_steps_end(tmp_path: Path, *, hurries: bool) -> None:
    """A step that must not be repeated ends within the drain, and its run goes on elsewhere; a second
    signal waits for nothing, and what the step did is unknown."""
    (tmp_path / "slow.py").write_text(SLOW)
    done = piped(tmp_path, "start", "mails", "--app", "slow:app", "--id", "r")
    assert done.returncode == 0, done.stderr
    worker = subprocess.Popen(
        [*COMMAND, "worker", "slow:app", "--drain", "60"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stderr is not None
    try:
        assert worker.stdout.readline() == "begun\n"
        worker.send_signal(signal.SIGTERM)
        while "60 s to finish" not in worker.stderr.readline():
            pass
        if hurries:
            worker.send_signal(signal.SIGTERM)
        else:
            (tmp_path / "let-go").touch()
        _, told = worker.communicate(timeout=30)
        assert "stopped" in told
        assert worker.returncode == 0
    finally:
        worker.kill()
        worker.communicate()
    [run] = records(piped(tmp_path, "ls", "--store", "sqlite:///slow.db").stdout)
    assert run["status"] == ("waiting" if hurries else "completed")
