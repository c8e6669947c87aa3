"""`./dev mutants [WORD …] [-j JOBS]`: break the code in every known way; exit 1 if one survives.

With words only those mutants whose name or file contains one of them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlast.testkit.mutation import Mutant, Report, Verdict, hunt
from tests.mutants import ROOT, every
from tools.serving import SERVERS
from tools.serving.system import stop_all

NEEDED = {
    "redis": "tests/stores/redis",
    "redis-cluster": "tests/stores/redis",
    "postgres": "tests/stores/postgres",
}


def main(argv: list[str]) -> int:
    """Hunt, print a table as results come in, and sum up."""
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    options = parser.parse_args(argv)
    chosen = [
        mutant
        for mutant in every()
        if not options.words
        or any(word in f"{mutant.name} {mutant.file}" for word in options.words)
    ]
    begun = time.monotonic()
    reports: list[Report] = []
    with servers_for(chosen):
        for report in hunt(chosen, ROOT, jobs=options.jobs):
            print(report, flush=True)
            reports.append(report)
    alive = [report for report in reports if report.verdict is not Verdict.KILLED]
    seconds = time.monotonic() - begun
    print(f"\n{len(reports) - len(alive)} of {len(reports)} mutants killed in {seconds:.0f} s")
    for report in alive:
        print(f"  {report}")
    return 1 if alive or not reports else 0


@contextmanager
def servers_for(mutants: list[Mutant]) -> Iterator[None]:
    """Start what their tests need: a test that misses its server fails, and would kill anything."""
    tests = {test for mutant in mutants for test in mutant.tests}
    names = [
        name for name, folder in NEEDED.items() if any(test.startswith(folder) for test in tests)
    ]
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its folder
        try:
            for name in names:
                os.environ.update(SERVERS[name](Path(place)))
            yield
        finally:
            stop_all()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
