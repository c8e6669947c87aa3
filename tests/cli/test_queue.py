"""The rules of a queue, seen and changed by an operator."""

from __future__ import annotations

import pytest

from outlast.cli.codes import Exit
from tests.cli.conftest import Invoke
from tests.cli.stage import records


def test_rules_are_set_shown_and_audited(outlast: Invoke) -> None:
    """What is named changes, the rest stays, and it is written down who did it."""
    assert outlast("queue", "set", "mail", "--concurrency", "5", "--rate", "100/60").exit_code == 0
    done = outlast("queue", "set", "mail", "--key-concurrency", "2", "--weight", "acme=3")
    [flow] = records(done.stdout)
    assert flow == {
        "queue": "mail",
        "concurrency": 5,
        "key_concurrency": 2,
        "rate": {"limit": 100, "per": 60.0},
        "weights": {"acme": 3.0},
    }
    outlast("queue", "pause", "mail")
    [stats] = records(outlast("queue", "show", "mail").stdout)
    assert (stats["blocked_by"], stats["flow"]["paused"]) == ("paused", True)
    outlast("queue", "resume", "mail")
    outlast("queue", "set", "mail", "--rate", "none")
    log = records(outlast("queue", "log", "mail").stdout)
    assert len(log) == 5
    assert "rate" not in log[0]["flow"]
    assert all("@" in change["by"] for change in log)
    [flow] = records(outlast("queue", "drop", "mail").stdout)
    assert flow == {"queue": "mail"}
    [stats] = records(outlast("queue", "show", "mail").stdout)
    assert stats["flow"] is None


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--concurrency", "0"), "paused=True"),
        (("--concurrency", "many"), "use a number, or none"),
        (("--rate", "x/y"), "100/60"),
        (("--rate", "1/0"), "at most a year"),
        (("--weight", "acme"), "KEY=3"),
        (("--weight", "acme=0"), "a weight of 0"),
        ((), "no rule is named"),
    ],
)
def test_impossible_rules(outlast: Invoke, args: tuple[str, ...], told: str) -> None:
    """A sentence that says what to write, an exit code, and nothing has changed."""
    done = outlast("queue", "set", "mail", *args)
    assert done.exit_code == Exit.USAGE
    assert told in done.stderr
    [stats] = records(outlast("queue", "show", "mail").stdout)
    assert stats["flow"] is None


def test_a_queue_name_with_a_slash(outlast: Invoke) -> None:
    """Rules are those of the queue, not of one of its steps."""
    done = outlast("queue", "pause", "mail/send")
    assert done.exit_code == Exit.USAGE
    assert "slash" in done.stderr
