"""Many runs of all kinds, and questions about them with what they mean in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from outlast.model.commit import Commit
from outlast.model.run import TERMINAL, Attribute, Run, Status
from outlast.ports.store import Store

Meaning = Callable[[Run], bool]

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
WORKFLOWS = ["checkout", "invoice", "import", "refund"]
ERRORS = [
    None,
    None,
    "TimeoutError: no answer",
    'boom "quoted"',
    "connection TIMEOUT",
    "Größe ist null",
]
TENANTS: list[Attribute] = ["acme", "globex", "5", 5, 5.0, True, "true", 7, -2, 0, -0.0, 2.5]
SIZES: list[Attribute] = [1, 2.5, 10, 300, "large"]
AGES = [timedelta(seconds=1), timedelta(hours=1), timedelta(days=1), timedelta(days=9)]


def a_run(chance: random.Random, number: int) -> Run:
    """A run like those in a store that has been used for a while."""
    attributes: dict[str, Attribute] = {}
    if chance.random() < 0.7:
        attributes["tenant"] = chance.choice(TENANTS)
    if chance.random() < 0.5:
        attributes["size"] = chance.choice(SIZES)
    return Run(
        id=f"{chance.choice(['order', 'job', 'Ünï'])}-{number:05}",
        workflow=chance.choice(WORKFLOWS),
        status=chance.choice(list(Status)),
        error=chance.choice(ERRORS),
        current_step=chance.choice([None, "charge", "ship#2"]),
        attributes=attributes,
        # Few moments, so that many are of the same age and order is decided by the id.
        created_at=NOW - chance.choice(AGES) * chance.randint(1, 5),
    )


async def settle(store: Store, runs: list[Run]) -> None:
    """Put runs into a store."""
    for start in range(0, len(runs), 200):
        commits = [Commit(run_id=run.id, create=run) for run in runs[start : start + 200]]
        for outcome in await store.commit(commits):
            assert not isinstance(outcome, Exception), outcome


def sample_query(chance: random.Random, depth: int = 0) -> tuple[str, Meaning]:
    """A question as text, and the same as a function."""
    kind = chance.random()
    if depth < 3 and kind < 0.45:
        left, one = sample_query(chance, depth + 1)
        right, other = sample_query(chance, depth + 1)
        if kind < 0.2:
            return f"({left}) or ({right})", lambda run: one(run) or other(run)
        word = chance.choice([" and ", " "])
        return f"({left}){word}({right})", lambda run: one(run) and other(run)
    if depth < 3 and kind < 0.6:
        text, meaning = sample_query(chance, depth + 1)
        return f"not ({text})", lambda run: not meaning(run)
    return chance.choice(SIMPLE)(chance)


def _by_status(chance: random.Random) -> tuple[str, Meaning]:
    if chance.random() < 0.2:
        return "status:open", lambda run: run.status not in TERMINAL
    wanted = chance.sample(list(Status), chance.randint(1, 3))
    if chance.random() < 0.3:
        return f"status!={','.join(wanted)}", lambda run: run.status not in wanted
    return f"status:{','.join(wanted)}", lambda run: run.status in wanted


def _by_workflow(chance: random.Random) -> tuple[str, Meaning]:
    name = chance.choice(WORKFLOWS)
    return chance.choice(
        [
            (f"workflow:{name}", lambda run: run.workflow == name),
            (f"workflow!={name}", lambda run: run.workflow != name),
            (f"workflow:{name[:3]}*", lambda run: run.workflow.startswith(name[:3])),
            (f"workflow~{name[2:4].upper()}", lambda run: name[2:4] in run.workflow),
        ]
    )


def _by_age(chance: random.Random) -> tuple[str, Meaning]:
    days = chance.randint(1, 20)
    edge = NOW - timedelta(days=days)
    day = edge.date()
    return chance.choice(
        [
            (f"age>{days}d", lambda run: run.created_at < edge),
            (f"age>={days}d", lambda run: run.created_at <= edge),
            (f"age < {days * 24}h", lambda run: run.created_at > edge),
            (f"created>=now-{days}d", lambda run: run.created_at >= edge),
            (f"created<{edge.isoformat()}", lambda run: run.created_at < edge),
            (f"created:{day}", lambda run: run.created_at.date() == day),
        ]
    )


def _by_attribute(chance: random.Random) -> tuple[str, Meaning]:
    size = chance.choice([1, 2, 10])

    def number(run: Run) -> float | None:
        value = run.attributes.get("size")
        return None if value is None or isinstance(value, str) else value

    def tenant(run: Run) -> list[object]:
        value = run.attributes.get("tenant")
        return [type(value).__name__, value]

    return chance.choice(
        [
            ("attr.tenant=acme", lambda run: tenant(run) == ["str", "acme"]),
            ('attr.tenant="5"', lambda run: tenant(run) == ["str", "5"]),
            (
                "attr.tenant:5",
                lambda run: tenant(run) in (["str", "5"], ["int", 5], ["float", 5.0]),
            ),
            ("attr.tenant:0", lambda run: tenant(run) in (["int", 0], ["float", 0.0])),
            ("attr.tenant=true", lambda run: tenant(run) in (["bool", True], ["str", "true"])),
            ("attr.tenant!=globex", lambda run: run.attributes.get("tenant") != "globex"),
            ("attr.tenant:*", lambda run: "tenant" in run.attributes),
            (f"attr.size>{size}", lambda run: (found := number(run)) is not None and found > size),
            (
                f"attr.size<={size}",
                lambda run: (found := number(run)) is not None and found <= size,
            ),
        ]
    )


def _by_text(chance: random.Random) -> tuple[str, Meaning]:
    digit = chance.randint(0, 9)
    return chance.choice(
        [
            ('error~"timeout"', lambda run: "timeout" in (run.error or "").lower()),
            (r'error~"\"quoted\""', lambda run: '"quoted"' in (run.error or "")),
            ('error:""', lambda run: run.error is None),
            ("error~GRÖSSE", lambda run: "größe" in (run.error or "").lower()),
            (f"id:order-*{digit}", lambda run: run.id[:6] == "order-" and run.id[-1] == str(digit)),
            ("id~ÜNÏ", lambda run: run.id.startswith("Ünï")),
            ("step:charge", lambda run: run.current_step == "charge"),
        ]
    )


def by_change(chance: random.Random, runs: list[Run]) -> tuple[str, Meaning]:
    """A question about the last change, for which the store sets the time: relative to one of theirs."""
    edge = chance.choice(runs).updated_at
    return chance.choice(
        [
            (f"updated>{edge.isoformat()}", lambda run: run.updated_at > edge),
            (f"updated>={edge.isoformat()}", lambda run: run.updated_at >= edge),
            (f"updated<{edge.isoformat()}", lambda run: run.updated_at < edge),
            (f"updated<={edge.isoformat()}", lambda run: run.updated_at <= edge),
        ]
    )


SIMPLE = [_by_status, _by_workflow, _by_age, _by_attribute, _by_text]
