"""The pages about the command line say what it says: the reference is compared, the examples run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click

from outlast.cli.main import COMMANDS, Exit, cli
from outlast.query.filter import FIELDS
from tests.docs.test_examples import blocks_of
from tests.unit.cli.stage import environment

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
OPERATE = (DOCS / "howto" / "operate.md").read_text(encoding="utf-8")
COMMON = {"--store", "--json", "--utc", "--color", "--help", "--where", "--dry-run", "--yes", "-v", "--verbose", "-y"}  # fmt: skip


def table(section: str) -> dict[str, str]:
    """The rows of a section's table by the first word of their first cell."""
    text = REFERENCE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `?([^ |`]+)[^|]*\|(.*)$", text.replace("\\|", "/"), re.MULTILINE)
    return {first: rest for first, rest in rows if first not in ("Command", "Code", "Field", "---")}


def test_every_command_and_option_is_listed() -> None:
    """The reference has each command, and each option that not all have."""
    rows = table("Commands")
    assert set(rows) == set(COMMANDS)
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        own = [
            option
            for parameter in command.params
            if isinstance(parameter, click.Option)
            for option in parameter.opts
            if option not in COMMON
        ]
        short = {"--limit": "-n", "--output": "-o"}
        missing = [
            one for one in own if one not in rows[name] and short.get(one, one) not in rows[name]
        ]
        assert missing == [], name


def test_exit_codes_are_listed() -> None:
    """The table has each code with its name, and no other."""
    found = re.findall(r"^\| (\d+) \| `(\w+)` \|", REFERENCE, re.MULTILINE)
    assert {int(code): name for code, name in found} == {code.value: code.name for code in Exit}


def test_the_fields_of_the_language_are_listed() -> None:
    """The table has each field, and no other."""
    assert set(table("The query language")) == {*FIELDS, "attr.NAME"}


def test_the_howto_shows_what_happens(tmp_path: Path) -> None:
    """Each command of the page is run in order, in a terminal; `…` stands for anything."""
    [shop] = [block.code for block in blocks_of(OPERATE)]
    (tmp_path / "shop.py").write_text(shop)
    blocks = re.findall(r"```console\n(.*?)```", OPERATE, re.DOTALL)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    variables = environment(PATH=path, NO_COLOR="1", COLUMNS="120", TERM="xterm")
    for call in [
        call for block in blocks for call in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]:
        command, _, expected = call.partition("\n")
        shown = in_a_terminal(command, tmp_path, variables)
        assert re.match(pattern_of(expected), squeezed(shown)), f"$ {command}\n{shown}"


def squeezed(text: str) -> str:
    """Text without what only aligns it."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def pattern_of(expected: str) -> str:
    """What a page shows, as a pattern: `…` is the rest of a line, and alone any number of lines."""
    lines = []
    for line in squeezed(expected).splitlines():
        parts = map(re.escape, line.split("…"))
        lines.append(r"(?:.*\n)*?" if line == "…" else ".*".join(parts) + r".*\n")
    return "".join(lines)


def in_a_terminal(command: str, folder: Path, variables: dict[str, str]) -> str:
    """What a command of the shell shows in a terminal, by the standard library's pty."""
    code = f"import pty, sys; sys.exit(pty.spawn(['sh', '-c', {command!r}]) >> 8)"
    script = f"stty cols 120 2>/dev/null; {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.replace("\r\n", "\n")
