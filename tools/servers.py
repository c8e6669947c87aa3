"""Runs a command with the servers that the tests need: `-m tools.servers [NAME …] -- COMMAND`.

Each server is started fresh in a folder of its own, on a free port, with its durability as in
production, and stopped at the end; nothing that runs on the machine already is used. The command
finds them in its environment:

    OUTLAST_TEST_POSTGRES        a PostgreSQL database, as its owner
    OUTLAST_TEST_PGBOUNCER       the same database through PgBouncer in transaction mode
    OUTLAST_TEST_REDIS           one Redis server
    OUTLAST_TEST_REDIS_CLUSTER   one node of a Redis Cluster: three primaries, three replicas
    OUTLAST_TEST_SQS             the endpoint of SQS, from moto

A server that cannot be started fails the run: nothing is left out in silence. With names
(`postgres`, `redis`, …) only those are started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.serving import SERVERS
from tools.serving.system import ServerMissing, stop_all


def main(argv: list[str]) -> int:
    """Start the servers, run the command, stop the servers; exit as the command did."""
    if "--" not in argv or argv[-1] == "--":
        print(__doc__, file=sys.stderr)
        return 2
    names, command = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    unknown = [name for name in names if name not in SERVERS]
    if unknown:
        print(f"no such server: {unknown[0]}; there are {', '.join(SERVERS)}", file=sys.stderr)
        return 2
    # However we end, the servers end with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="outlast-servers-") as folder:
        try:
            environment = _started(Path(folder), names or SERVERS)
            return subprocess.run(command, env=environment, check=False).returncode
        except ServerMissing as missing:
            print(f"servers: {missing}", file=sys.stderr)
            return 3
        finally:
            stop_all()


def _started(folder: Path, names: Iterable[str]) -> dict[str, str]:
    folder.chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its own folder
    environment = dict(os.environ)
    with ThreadPoolExecutor() as pool:
        for found in pool.map(lambda name: SERVERS[name](folder), names):
            environment.update(found)
    return environment


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
