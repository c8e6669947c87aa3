"""Every command in a terminal, as a person calls it: colours, width, questions, Ctrl-C."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outlast.cli.main import Exit
from outlast.cli.output import width_of
from tests.unit.cli.stage import piped, terminal

COLOURS = re.compile(r"\x1b\[[0-9;]*m")

CALLS = {
    "start": (["start", "pack", "--app", "shop", "--input", '{"order": "x"}', "--wait"], '"shipped x"'),
    "ls": (["ls", "--attr", "tenant"], "order-done"),
    "show": (["show", "order-lost"], "attempt 2: RuntimeError: timeout at the carrier"),
    "history": (["show", "order-done", "--history"], "workflow.completed"),
    "tail": (["tail", "order-done"], "workflow.completed"),
    "changes": (["tail", "--no-follow"], "order-done"),
    "why": (["why", "order-waits"], "It waits for the signal 'go'"),
    "signal": (["signal", "order-waits", "go"], "sent go to order-waits"),
    "update": (["update", "order-waits", "x", "--timeout", "0.1"], "has no answer"),
    "cancel": (["cancel", "order-waits"], "cancel  order-waits"),
    "terminate": (["terminate", "order-waits"], "terminate  order-waits"),
    "pause": (["pause", "order-sleeps"], "pause  order-sleeps"),
    "resume": (["resume", "order-halts"], "resume  order-halts"),
    "retry": (["retry", "order-lost"], "retry  order-lost  from child:pack"),
    "fork": (["fork", "order-done", "charge", "--id", "forked"], "forked"),
    "rm": (["rm", "order-done"], "rm  order-done"),
    "dry": (["rm", "--where", "status:ended", "--dry-run"], "would rm  order-done"),
    "queues": (["queues"], "QUEUE"),
    "workers": (["workers"], "no worker is running"),
    "move": (["move", "--to", "sqlite:///other.db", "-y"], "runs are in sqlite:///other.db now"),
    "frames": (["show", "order-lost~child.pack"], "  at shop.py:17 in ship"),
    "dead": (["dead", "ls"], "no dead task"),
    "export": (["export", "order-done"], "name a file with -o FILE"),
    "import": (["import", "shop.py", "--store", "sqlite:///b.db"], "not an export file"),
    "db": (["db", "check"], "runs read, 0 problems"),
    "doctor": (["doctor"], "survives a loss of power"),
    "completion": (["completion", "bash"], "_outlast_completion"),
    "help": (["--help"], "doctor"),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_command(shop: Path, call: str) -> None:
    """It speaks to people: no JSON, no traceback."""
    args, shown = CALLS[call]
    with terminal(shop, *args) as screen:
        screen.end()
        plain = COLOURS.sub("", screen.shown)
    assert shown in plain
    assert "Traceback" not in plain
    assert '{"id"' not in plain


def test_a_status_has_its_colour_and_no_color_takes_it_away(shop: Path) -> None:
    """Colours on a terminal; none with NO_COLOR, on a dumb terminal, or with --no-color."""
    with terminal(shop, "ls") as screen:
        screen.end()
        assert "\x1b[31mfailed" in screen.shown
        assert "\x1b[32mcompleted" in screen.shown
    for args, no_color in ((["ls"], "1"), (["ls", "--no-color"], "")):
        with terminal(shop, *args, NO_COLOR=no_color) as screen:
            screen.end()
            assert "failed" in screen.shown
            assert "\x1b" not in screen.shown
    with terminal(shop, "ls", "--json") as screen:
        screen.end()
        assert screen.shown.startswith('{"id"')
        assert "\x1b" not in screen.shown


@pytest.mark.parametrize("args", [["ls"], ["show", "order-lost"], ["tail", "order-lost"]])
def test_a_terminal_of_forty_columns(shop: Path, args: list[str]) -> None:
    """Tables and trees fit: what matters less is left out or shortened."""
    with terminal(shop, *args, width=40) as screen:
        screen.end()
        lines = COLOURS.sub("", screen.shown).splitlines()
    assert len(lines) > 5
    if args[0] != "tail":  # a line of events is as long as its key
        notes = ("what it waits for", "child 'order-lost~child.pack' failed")
        too_long = [line for line in lines if width_of(line) > 40 and not line.startswith(notes)]
        assert too_long == []


def test_times_are_human_unless_utc_is_asked_for(shop: Path) -> None:
    """`3s ago`, or with --utc the moment itself."""
    with terminal(shop, "show", "order-done") as screen:
        screen.end()
        assert re.search(r"created\s+\S+ ago", screen.shown)
    with terminal(shop, "show", "order-done", "--utc") as screen:
        screen.end()
        assert re.search(r"created\s+20\d\d-\d\d-\d\dT[\d:.]+Z", screen.shown)


def test_a_bulk_action_asks(shop: Path) -> None:
    """It says how many match and where, and asks; no is no, and changes nothing."""
    before = piped(shop, "ls").stdout
    with terminal(shop, "terminate", "--where", "status:open") as screen:
        screen.read_until("[y/N]")
        assert "3 runs match in sqlite:///outlast.db" in screen.shown
        screen.type("n\r")
        assert screen.end() == Exit.FOUND
        assert "nothing was changed" in screen.shown
    assert piped(shop, "ls").stdout == before
    with terminal(shop, "terminate", "--where", "status:open") as screen:
        screen.read_until("[y/N]")
        screen.type("y\r")
        assert screen.end() == 0
        assert "terminate: 3 done" in screen.shown
    assert piped(shop, "ls", "status:open").stdout == ""


@pytest.mark.parametrize(
    "args", [["rm", "--where", "status:ended"], ["move", "--to", "sqlite:///other.db"]]
)
def test_ctrl_c_at_a_question_changes_nothing(shop: Path, args: list[str]) -> None:
    """Interrupted before it is confirmed: nothing is done, exit code 130."""
    before = piped(shop, "ls").stdout
    with terminal(shop, *args) as screen:
        screen.read_until("[y/N]")
        screen.type("\x03")
        assert screen.end() == Exit.INTERRUPTED
        assert "Traceback" not in screen.shown
    assert piped(shop, "ls").stdout == before


def test_ctrl_c_ends_a_tail(shop: Path) -> None:
    """Following can be interrupted at any time, without a traceback."""
    with terminal(shop, "tail", "order-waits") as screen:
        screen.read_until("signal.waiting")
        screen.type("\x03")
        assert screen.end() == Exit.INTERRUPTED
        assert "Traceback" not in screen.shown


def test_ctrl_c_at_the_debugger_is_heard(shop: Path) -> None:
    """The prompt comes back at once, as it does in every debugger."""
    assert piped(shop, "export", "order-done", "-o", "done.outlast").returncode == 0
    args = ("replay", "done.outlast", "--app", "shop", "--break-at", "charge")
    with terminal(shop, *args) as screen:
        screen.read_until("(Pdb)")
        # Once: a second Ctrl-C, between two prompts, ends the debugger as it should. A signal that comes
        # between showing the prompt and reading is handled when Python has read a line.
        screen.type("\x03")
        while "KeyboardInterrupt" not in screen.shown:
            if not screen.read_for(2.0):
                assert screen.process.poll() is None, screen.shown
                screen.type("\n")
        screen.shown = screen.shown.partition("KeyboardInterrupt")[2]
        screen.read_until("(Pdb)")
        screen.type("q\n")
        assert screen.end() == 0


def test_ctrl_c_stops_a_worker_in_good_order(shop: Path) -> None:
    """What is under way is handed back; the exit code says that it was interrupted."""
    with terminal(shop, "worker", "shop:app") as screen:
        screen.read_until("stop with Ctrl-C")
        screen.type("\x03")
        assert screen.end() == Exit.INTERRUPTED
        assert "stopped" in screen.shown
        assert "Traceback" not in screen.shown


def test_dev_begins_anew_when_the_code_changes(shop: Path) -> None:
    """The same process, with the new code; code that cannot be loaded is waited out."""
    source = (shop / "shop.py").read_text()
    with terminal(shop, "dev", "shop.py") as screen:
        screen.read_until("running checkout, counter, pack")
        write(shop / "shop.py", "syntax error here\n", 1)
        screen.read_until("this code cannot be loaded; waiting for a change")
        mended = source.replace("async def counter", "async def teller").replace(
            "pack, counter]", "pack, teller]"
        )
        write(shop / "shop.py", mended, 2)
        screen.read_until("running checkout, pack, teller")
        screen.type("\x03")
        assert screen.end() == Exit.INTERRUPTED


def write(path: Path, text: str, tick: int) -> None:
    """Write a file that is surely newer, whatever the clock of the disk."""
    import os

    before = path.stat().st_mtime_ns
    partial = path.with_suffix(".new")
    partial.write_text(text)
    os.utime(partial, ns=(before, before + tick * 1_000_000_000))
    partial.replace(path)


def test_users_data_cannot_drive_the_terminal(shop: Path) -> None:
    """Control and bidi characters of a workflow's values are shown as escapes."""
    nasty = '{"order": "\\u001b[2Jgone\\u202e\\u009b31m"}'
    piped(shop, "start", "pack", "--app", "shop", "--input", nasty, "--id", "nasty")
    with terminal(shop, "show", "nasty", "--full") as screen:
        screen.end()
        bare = COLOURS.sub("", screen.shown)
    assert "gone" in bare
    assert not set(bare) & {"\x1b", "\u202e", "\x9b"}
