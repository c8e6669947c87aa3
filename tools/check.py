"""Every check that is not a test, run side by side: `./dev check [--fix] [NAME …]`.

All of them run, so that one round shows all there is to mend. A check that passes is one line; a
check that fails prints what it said.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TYPED = ("src", "tests", "tools", "bench", "examples", "dev")


def main(argv: list[str]) -> int:
    """Run the checks named, or all; return 1 if one failed."""
    steps = check_steps()
    parser = argparse.ArgumentParser(prog="./dev check", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(steps))
    parser.add_argument(
        "--fix", action="store_true", help="first generate and format, and mend what ruff can"
    )
    options = parser.parse_args(argv)
    if unknown := set(options.names) - set(steps):
        parser.error(f"no such check: {', '.join(sorted(unknown))}; there are {', '.join(steps)}")
    if options.fix:
        run(["python", "-m", "tools.generate"])
        run(["ruff", "check", "--fix-only", "--quiet"])
        run(["ruff", "format", "--quiet"])
        run(["python", "tools/words.py", "--fix"])
    names = options.names or list(steps)
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        outcomes = pool.map(lambda name: run(steps[name]), names)
        failed = [
            name for name, outcome in zip(names, outcomes, strict=True) if tell(name, outcome)
        ]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def check_steps() -> dict[str, list[str]]:
    """Return each check's command; the slow ones first, so that the quick ones fill the other core."""
    return {
        "mypy": ["mypy", *(path for path in TYPED if has_python(ROOT / path))],
        "pyright": ["pyright", "--pythonpath", sys.executable],
        "imports": ["lint-imports", "--no-logo", "--cache-dir=.cache/import-linter"],
        "format": ["ruff", "format", "--check", "--diff", "--quiet"],
        "lint": ["ruff", "check", "--quiet", "--output-format=concise"],
        "portable": ["python", "tools/portable.py"],
        "docs": ["python", "-m", "tools.generate", "--check"],
        "words": ["python", "tools/words.py"],
    }


def has_python(path: Path) -> bool:
    """Tell whether there is a script or a folder with Python files; mypy refuses an empty one."""
    return path.is_file() or any(path.rglob("*.py"))


class Outcome(NamedTuple):
    """What a command did: its exit code, all that it printed, and the seconds it took."""

    status: int
    output: str
    seconds: float


def run(command: list[str]) -> Outcome:
    """Run a program of this environment and keep what it prints."""
    start = time.monotonic()
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run(
        [program, *command[1:]],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, time.monotonic() - start)


def tell(name: str, outcome: Outcome) -> bool:
    """Print one check's outcome and return whether it failed."""
    failed = outcome.status != 0
    if failed:
        print(f"-- {name}\n{outcome.output.strip()}")
    print(f"{'FAIL' if failed else 'ok':4} {name} ({outcome.seconds:.1f} s)", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
