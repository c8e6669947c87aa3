"""Runs the modules of a folder that each have a `main(argv)`: `./dev prove` and `./dev bench`.

    modules.py FOLDER [NAME …] [--json FILE] [ARGUMENTS]

Without a name all modules of the folder run, one after the other, each in a process of its own, and
a failure of one does not stop the next. `--list` names them. The arguments that follow the names go
to each module. With `--json FILE` each writes a JSON object to a file of its own, which at first is a
copy of the one that was asked for, and when it has ended, be it by Ctrl-C, that is merged into the one
that was asked for; what others have left there stays.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CALL_MAIN = """
import importlib, sys
sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))
"""


def main(argv: list[str]) -> int:
    """Run what the arguments ask for; return the last exit code that is not 0."""
    folder, *args = argv
    known = modules_in(ROOT / folder)
    if args in (["--list"], ["--help"], ["-h"]):
        print(__doc__ if args != ["--list"] else "\n".join(known))
        return 0
    if not known:
        print(f"there is nothing in {folder}/ yet")
        return 2
    names, rest = split_names(known, args)
    if not names:
        print(f"{folder}/ has no {rest[0]!r}; it has {', '.join(known)}")
        return 2
    target, rest = take_json(rest)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    status = 0
    for name in names:
        if len(names) > 1:
            print(f"== {name}", flush=True)
        written: AbstractContextManager[list[str]]
        written = results_of(name, Path(target)) if target else nullcontext([])
        with written as extra:
            status = call_main(f"{folder.replace('/', '.')}.{name}", [*rest, *extra]) or status
    return status


@contextmanager
def results_of(name: str, target: Path) -> Iterator[list[str]]:
    """The arguments for a module that writes results, which are merged into the target at the end."""
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / f"{name}.json"
        if target.exists():
            shutil.copy(target, own)
        try:
            yield ["--json", str(own)]
        finally:
            write_json(target, merge_json(path for path in (target, own) if path.exists()))


def write_json(target: Path, value: object) -> None:
    """Write a file as a whole, or leave what is there."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.write_text(f"{text}\n", encoding="utf-8")
    beside.replace(target)


def modules_in(folder: Path) -> list[str]:
    """Return the names of the modules in a folder, without private ones."""
    names = sorted(path.stem for path in folder.glob("*.py"))
    return [name for name in names if name != "conftest" and not name.startswith("_")]


def split_names(known: list[str], args: list[str]) -> tuple[list[str], list[str]]:
    """Split the known names in front from the arguments that follow.

    No name means all; a first word that is neither a name nor an option gives no name at all.
    """
    count = 0
    while count < len(args) and args[count] in known:
        count += 1
    if count == 0 and (not args or args[0].startswith("-")):
        return known, args
    return args[:count], args[count:]


def take_json(args: list[str]) -> tuple[str, list[str]]:
    """Take `--json FILE` or `--json=FILE` out of the arguments."""
    for index, arg in enumerate(args):
        if arg == "--json" and index + 1 < len(args):
            return args[index + 1], args[:index] + args[index + 2 :]
        if arg.startswith("--json="):
            return arg.removeprefix("--json="), args[:index] + args[index + 1 :]
    return "", args


def call_main(module: str, args: list[str]) -> int:
    """Call the `main` of one module in a new process and return its exit code."""
    command = [sys.executable, "-c", CALL_MAIN, module, *args]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            return process.wait()
        except SystemExit:
            process.terminate()
            raise
        finally:  # it stops its servers first; Ctrl-C it has got as well
            process.wait()


def merge_json(paths: Iterable[Path]) -> dict[str, object]:
    """Merge the objects in several JSON files into one."""
    merged: dict[str, object] = {}
    for path in paths:
        merged |= json.loads(path.read_text(encoding="utf-8"))
    return merged


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
