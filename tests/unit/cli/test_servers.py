"""A sample of commands on PostgreSQL and Redis: the same answers as on SQLite."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.cli.main import Exit
from outlast.model.ids import new_id
from tests.stores.postgres.places import ask, direct
from tests.stores.redis.servers import SINGLE, own_prefix, url_of
from tests.unit.cli.stage import environment, piped, records, terminal
from tests.unit.cli.test_processes import CALLS as PIPED
from tests.unit.cli.test_terminals import CALLS as SHOWN
from tests.unit.cli.test_terminals import COLOURS
from tests.unit.queues.sqs.places import client, endpoint
from tests.unit.queues.sqs.places import own_prefix as queue_prefix


@pytest.mark.server
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_the_same_on_servers(filled: Path, tmp_path: Path, kind: str) -> None:
    """Find, show, why, signal, bulk actions, export from SQLite and import here, doctor."""
    url = direct() if kind == "postgres" else f"{url_of(SINGLE)}?prefix={own_prefix()}"
    prefix = f"o{new_id()}"
    variables = {"OUTLAST_STORE": url, "SHOP_STORE": url}
    subprocess.run(
        [sys.executable, filled / "shop.py", prefix],
        cwd=tmp_path,
        env=environment(**variables),
        check=True,
        capture_output=True,
    )

    def told(*args: str) -> list[dict[str, object]]:
        done = piped(tmp_path, *args, **variables)
        assert done.returncode == 0, done.stderr
        return records(done.stdout)

    failed = told("ls", f"id:{prefix}*", "status:failed", "attr.tenant=acme", 'error~"TIMEOUT"')
    assert [run["id"] for run in failed] == [f"{prefix}-lost"]
    assert told("ls", "--count", f"id:{prefix}*") == [{"count": 7, "exact": True}]
    [run] = told("show", f"{prefix}-lost")
    assert [part["key"] for part in run["parts"]][-1] == "undo"  # type: ignore[attr-defined]
    [reason] = told("why", f"{prefix}-waits")
    assert "It waits for the signal 'go'" in str(reason["why"])
    told("signal", f"{prefix}-waits", "go", "--value", "1")
    assert len(told("terminate", "--where", f"id:{prefix}* status:open", "--yes")) == 3
    assert told("ls", f"id:{prefix}*", "status:open") == []
    done = piped(filled, "export", "order-done", "-o", str(tmp_path / "done.outlast"))
    assert done.returncode == 0, done.stderr
    told("rm", "--where", f"id:{prefix}*", "--yes")
    assert told("import", "done.outlast") == [
        {"id": "order-done", "runs": 2, "written": 2, "waiting": 0}
    ]
    mine = piped(filled, "show", "order-done", "--history").stdout
    assert piped(tmp_path, "show", "order-done", "--history", **variables).stdout == mine
    told("rm", "order-done")
    assert told("db", "check", "-n", "20") == []
    assert all(finding["level"] != "problem" for finding in told("doctor"))


@pytest.fixture
async def place(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A store of its own on a server."""
    if request.param == "redis":
        yield f"{url_of(SINGLE)}?prefix={own_prefix()}"
        return
    name = f"cli{new_id().replace('-', '')}"
    await ask(f'CREATE DATABASE "{name}"')
    yield f"{direct().rpartition('/')[0]}/{name}"
    await ask(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.mark.server
@pytest.mark.timeout(400)  # some thirty processes, one after the other
@pytest.mark.parametrize("place", ["postgres", "redis"], indirect=True)
def test_every_command_on_servers(place: str, filled: Path, tmp_path: Path) -> None:
    """Each command in a process of its own, those that one server is asked in a pipe the other is
    asked in a terminal: what it says is what it says on SQLite."""
    variables = {"OUTLAST_STORE": place, "SHOP_STORE": place}
    shutil.copy(filled / "shop.py", tmp_path)
    subprocess.run(
        [sys.executable, "shop.py"],
        cwd=tmp_path,
        env=environment(**variables),
        check=True,
        capture_output=True,
    )
    last = ["rm", "move"]
    commands = [*(name for name in PIPED if name not in last), *last]
    for number, command in enumerate(commands):
        if command in SHOWN and number % 2 == place.startswith("redis"):
            args, shown = SHOWN[command]
            with terminal(tmp_path, *args, width=(40, 80, 200)[number % 3], **variables) as screen:
                screen.end()
                plain = COLOURS.sub("", screen.shown)
            assert "Traceback" not in plain, command
            # A narrow terminal breaks lines and shortens cells: what begins them is there.
            assert shown.split()[0] in plain, (command, plain)
            continue
        args, shown = PIPED[command]
        done = piped(tmp_path, *args, **variables)
        assert done.returncode == 0, (command, done.stderr)
        assert (shown if command != "move" else '"refused":0') in done.stdout, command


@pytest.mark.server
def test_doctor_checks_the_wakeup_channel(shop: Path) -> None:
    """A queue whose attributes hold wake-ups back or keep them for days is told of, each with its remedy;
    one that is not there is a problem."""
    name = f"{queue_prefix()}wakeups"
    attributes = {"DelaySeconds": "5", "MessageRetentionPeriod": "345600"}
    client().create_queue(QueueName=name, Attributes=attributes)
    keys = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret"}
    where = f"?region=eu-central-1&endpoint={endpoint()}"
    done = piped(shop, "doctor", "--wakeup-channel", f"sqs://{name}{where}", **keys)
    assert done.returncode == 0, done.stderr
    told = {one["remedy"]: one for one in records(done.stdout) if one["level"] == "warning"}
    assert "set DelaySeconds of the queue to 0" in told
    assert "set MessageRetentionPeriod of the queue to 60" in told
    done = piped(shop, "doctor", "--wakeup-channel", f"sqs://{name}-missing{where}", **keys)
    assert done.returncode == Exit.FOUND
    assert records(done.stdout)[-1]["level"] == "problem"
