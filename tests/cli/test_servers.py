"""A sample of commands on PostgreSQL and Redis: the same answers as on SQLite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outlast.model.ids import new_id
from tests.cli.stage import environment, piped, records
from tests.postgres.places import direct
from tests.redis.servers import SINGLE, own_prefix, url_of


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

    def ask(*args: str) -> list[dict[str, object]]:
        done = piped(tmp_path, *args, **variables)
        assert done.returncode == 0, done.stderr
        return records(done.stdout)

    failed = ask("ls", f"id:{prefix}*", "status:failed", "attr.tenant=acme", 'error~"TIMEOUT"')
    assert [run["id"] for run in failed] == [f"{prefix}-lost"]
    assert ask("ls", "--count", f"id:{prefix}*") == [{"count": 7, "exact": True}]
    [run] = ask("show", f"{prefix}-lost")
    assert [part["key"] for part in run["parts"]][-1] == "undo"  # type: ignore[attr-defined]
    [reason] = ask("why", f"{prefix}-waits")
    assert "It waits for the signal 'go'" in str(reason["why"])
    ask("signal", f"{prefix}-waits", "go", "--value", "1")
    assert len(ask("terminate", "--where", f"id:{prefix}* status:open", "--yes")) == 3
    assert ask("ls", f"id:{prefix}*", "status:open") == []
    done = piped(filled, "export", "order-done", "-o", str(tmp_path / "done.outlast"))
    assert done.returncode == 0, done.stderr
    ask("rm", "--where", f"id:{prefix}*", "--yes")
    assert ask("import", "done.outlast") == [{"id": "order-done", "runs": 2}]
    mine = piped(filled, "show", "order-done", "--history").stdout
    assert piped(tmp_path, "show", "order-done", "--history", **variables).stdout == mine
    ask("rm", "order-done")
    assert ask("db", "check", "-n", "20") == []
    assert all(finding["level"] != "problem" for finding in ask("doctor"))
