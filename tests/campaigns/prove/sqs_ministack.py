"""The tests of SQS on a second server of it, ministack, from a wheel.

The tests of every day run on moto's server, whose time a test can move. ministack's time cannot be
moved, so those tests that need that are left out, and named. It goes into an environment of its own
under .cache/; where it cannot be had this says so, and ends with 2.

    ./dev prove sqs_ministack [ARGUMENTS FOR PYTEST]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench._peers import environment
from tools.serving.system import Process, ServerMissing, free_port, listens, stop_all

ROOT = Path(__file__).resolve().parents[3]
WHEEL = "ministack==1.5.33"
FILES = ("wakeups", "fifo", "mapping", "polling", "trouble")
MOVE_TIME = (
    "test_a_delay_is_kept_where_sqs_has_none",
    "test_letters_moved_by_sqs_are_read_like_ours",
)


def main(argv: list[str]) -> int:
    """Run the tests; as pytest ends."""
    if "--json" in argv:  # there are no figures but pytest's own
        del argv[argv.index("--json") : argv.index("--json") + 2]
    try:
        python = environment("ministack", [WHEEL])
    except Exception as error:  # noqa: BLE001 - whatever keeps it away is told
        print(f"ministack cannot be had here ({WHEEL}): {error}")
        return 2
    print(f"{WHEEL}; left out, because its time cannot be moved: {', '.join(MOVE_TIME)}")
    port = free_port()
    os.environ["GATEWAY_PORT"] = str(port)
    with tempfile.TemporaryDirectory() as folder:
        try:
            server = Process([str(python), "-m", "ministack"], Path(folder), name="ministack")
            server.wait_until(lambda: listens(port))
            tests = [f"tests/unit/queues/sqs/test_{name}.py" for name in FILES]
            chosen = ["-q", "-n", "2", "-k", " and ".join(f"not {name}" for name in MOVE_TIME)]
            return subprocess.run(
                [sys.executable, "-m", "pytest", *tests, *chosen, *argv],
                cwd=ROOT,
                env=os.environ | {"OUTLAST_TEST_SQS": f"http://127.0.0.1:{port}"},
                check=False,
            ).returncode
        except ServerMissing as missing:
            print(f"ministack does not start: {missing}")
            return 2
        finally:
            stop_all()
