"""What a run has done, read off its history, and why it is where it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw

from outlast.model import payloads as said
from outlast.model.event import Event, to_event
from outlast.model.payloads import Payload
from outlast.model.run import Run, Status
from outlast.query.outline import Part, outline
from outlast.query.why import reasons

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def history(*told: tuple[str, Payload]) -> list[Event]:
    """Events, one a second."""
    return [
        to_event(payload, run_id="r", step_name=key, timestamp=NOW + timedelta(seconds=at))
        for at, (key, payload) in enumerate(told)
    ]


def shape(parts: list[Part]) -> list[Any]:
    """Names, states and what lies below."""
    return [
        (part.kind, part.name, part.status, *([shape(part.parts)] if part.parts else []))
        for part in parts
    ]


def test_parts_lie_in_what_asked_for_them() -> None:
    """Tasks, scopes, loops and compensation hold what their keys say; a task is as its parts."""
    events = history(
        ("0/a", said.StepStarted(attempt=1)),
        ("0/0/b", said.StepStarted(attempt=1)),
        ("0/a", said.StepCompleted(duration_ns=1)),
        ("0/0/b", said.StepCompleted(duration_ns=1)),
        ("scope:s", said.ScopeStarted()),
        ("scope:s/a", said.StepStarted(attempt=1)),
        ("scope:s/a", said.StepFailedEvent(error="no", attempt=1, will_retry=False)),
        ("scope:s", said.ScopeFailedEvent(error="no")),
        ("loop:l/0/a", said.StepStarted(attempt=1)),
        ("undo", said.CompensationStarted(trigger_step="a", steps_to_undo=["loop:l/0/a"])),
        ("undo/loop:l/0/a", said.StepStarted(attempt=1)),
    )
    assert shape(outline(events)) == [
        (
            "task", "0", "completed",
            [("step", "a", "completed"), ("task", "0", "completed", [("step", "b", "completed")])],
        ),
        ("scope", "scope:s", "failed", [("step", "a", "failed")]),
        ("loop", "loop:l", "running", [("task", "0", "running", [("step", "a", "running")])]),
        ("compensation", "undo", "running", [("step", "loop:l/0/a", "running")]),
    ]  # fmt: skip
    ended = outline(events, ended=True)
    assert not any(part.is_open for top in ended for part in top.walk())


def test_attempts_and_maps_are_counted() -> None:
    """Each attempt has its error; a map says how far it is."""
    retry_at = NOW + timedelta(minutes=5)
    [step, many] = outline(
        history(
            ("a", said.StepStarted(attempt=1, input=Raw(b"1"))),
            ("a", said.StepFailedEvent(error="x", attempt=1, will_retry=True, retry_at=retry_at)),
            ("map:b", said.MapStarted(item_count=5)),
            ("map:b", said.MapProgress(completed=[0, 1], failed=[(2, "x")])),
            ("map:b", said.MapProgress(completed=[3], failed=[(4, "x")])),
        )
    )
    assert (step.status, step.until, step.attempts[0].error) == ("retrying", retry_at, "x")
    assert many.note == "3 of 5, 2 failed"


def test_events_of_a_newer_outlast_are_shown_as_unknown() -> None:
    """A type that is not known does not hide the rest."""
    newer = Event(type="wish.granted", run_id="r", step_name="w", timestamp=NOW)
    [part] = outline([newer])
    assert part.kind == "wish"
    assert "unknown type" in str(part.error)


def run(**fields: Any) -> Run:
    """A run that was written a minute ago."""
    return Run(**{"id": "r", "workflow": "w", "updated_at": NOW - timedelta(minutes=1), **fields})


REASONS: list[tuple[Run, list[tuple[str, Payload]], str]] = [
    (run(status=Status.PAUSED), [], "It is paused since"),
    (run(status=Status.HALTED, wait_kind="mismatch", error="a {b} c"), [], "disagree"),
    (
        run(status=Status.HALTED, wait_kind="bug", error="a {b} c"),
        [],
        "A bug in its code has parked it since",
    ),
    (
        run(status=Status.RUNNING, owner="w{1}", claimed_until=NOW + timedelta(seconds=9)),
        [("a", said.StepStarted(attempt=1))],
        "Worker 'w{1}' has it. Its lease expires at",
    ),
    (
        run(owner="w1", claimed_until=NOW - timedelta(seconds=9), runnable_at=NOW),
        [],
        "has not renewed its lease",
    ),
    (run(runnable_at=NOW), [], "none with the code of 'w' is running"),
    (run(runnable_at=NOW + timedelta(hours=1)), [], "It becomes runnable at"),
    (run(status=Status.WAITING), [], "its history does not say what for"),
    (
        run(status=Status.WAITING),
        [("child:k", said.ChildSpawned(child_run_id="r~child.k", workflow_name="k"))],
        "It waits for its child 'r~child.k'",
    ),
    (
        run(status=Status.WAITING),
        [
            ("a", said.StepStarted(attempt=1)),
            ("a", said.StepFailedEvent(error="{}", attempt=1, will_retry=True, retry_at=NOW)),
        ],
        "Attempt 1 of step 'a' failed ('{}'); the next attempt is at",
    ),
    (
        run(status=Status.RUNNING),
        [("map:m", said.MapStarted(item_count=2))],
        "Map 'map:m' is running",
    ),
    (run(status=Status.CANCELLED, error="enough {"), [], "It was cancelled at"),
]


@pytest.mark.parametrize(("record", "told", "expected"), REASONS)
def test_why(record: Run, told: list[tuple[str, Payload]], expected: str) -> None:
    """Each state is told in a sentence; braces in users' data are only braces."""
    found = reasons(record, outline(history(*told)), now=NOW)
    texts = [reason.text.format(*reason.times) for reason in found]
    assert any(expected in text for text in texts), texts
