"""Payloads: what each type of event says, under the exact names that are recorded."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import Raw

from outlast.errors import Undecodable
from outlast.model import Event, EventType, payloads
from outlast.model.event import PAYLOADS, payload_of, to_event
from outlast.model.payloads import Payload

MOMENT = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
VALUE = Raw(b'{"a":1}')

EXAMPLES: list[tuple[str, Payload, str]] = [
    (
        "K-20",
        payloads.WorkflowStarted(workflow_name="order", version=3, input=VALUE),
        '{"workflow_name":"order","version":3,"input":{"a":1}}',
    ),
    (
        "K-20",
        payloads.WorkflowStarted(workflow_name="order", version="3.1"),
        '{"workflow_name":"order","version":"3.1"}',
    ),
    ("K-21", payloads.WorkflowCompleted(output=VALUE), '{"output":{"a":1}}'),
    ("K-21", payloads.WorkflowCompleted(), "{}"),
    ("K-22", payloads.WorkflowFailed(error="no"), '{"error":"no"}'),
    ("K-23", payloads.WorkflowCancelled(reason="no"), '{"reason":"no"}'),
    ("K-24", payloads.StepStarted(attempt=2), '{"attempt":2}'),
    ("K-24", payloads.StepStarted(), "{}"),
    ("K-25", payloads.StepCompleted(duration_ns=5), '{"duration_ns":5}'),
    (
        "K-26",
        payloads.StepFailedEvent(error="no", attempt=1, will_retry=False),
        '{"error":"no","attempt":1,"will_retry":false}',
    ),
    (
        "K-27",
        payloads.BranchEvaluated(branch_name="risk", choice="high"),
        '{"branch_name":"risk","choice":"high"}',
    ),
    (
        "K-28",
        payloads.SignalWaiting(signal_name="paid", timeout_at=MOMENT),
        '{"signal_name":"paid","timeout_at":"2031-05-06T07:08:09Z"}',
    ),
    ("K-28", payloads.SignalWaiting(signal_name="paid"), '{"signal_name":"paid"}'),
    (
        "K-29",
        payloads.SignalReceived(signal_name="paid", payload=VALUE),
        '{"signal_name":"paid","payload":{"a":1}}',
    ),
    ("K-29", payloads.SignalReceived(signal_name="paid"), '{"signal_name":"paid"}'),
    ("K-30", payloads.SignalTimeoutEvent(signal_name="paid"), '{"signal_name":"paid"}'),
    (
        "K-31",
        payloads.ChildSpawned(child_run_id="r~c", workflow_name="ship", input=VALUE),
        '{"child_run_id":"r~c","workflow_name":"ship","input":{"a":1}}',
    ),
    (
        "K-32",
        payloads.ChildCompleted(child_run_id="r~c", output=VALUE),
        '{"child_run_id":"r~c","output":{"a":1}}',
    ),
    ("K-32", payloads.ChildCompleted(child_run_id="r~c"), '{"child_run_id":"r~c"}'),
    (
        "K-33",
        payloads.ChildFailedEvent(child_run_id="r~c", error="no"),
        '{"child_run_id":"r~c","error":"no"}',
    ),
    ("K-34", payloads.MapStarted(item_count=9), '{"item_count":9}'),
    ("K-35", payloads.MapCompleted(results=Raw(b"[1,2]")), '{"results":[1,2]}'),
    (
        "K-36",
        payloads.MapFailedEvent(failed_index=0, error="no"),
        '{"failed_index":0,"error":"no"}',
    ),
    (
        "K-37",
        payloads.CompensationStarted(trigger_step="ship", steps_to_undo=["pay", "book"]),
        '{"trigger_step":"ship","steps_to_undo":["pay","book"]}',
    ),
    (
        "K-38",
        payloads.CompensationCompleted(steps_compensated=[]),
        '{"steps_compensated":[]}',
    ),
    (
        "K-39",
        payloads.CompensationFailed(failed_step="pay", error="no"),
        '{"failed_step":"pay","error":"no"}',
    ),
    ("K-40", payloads.SnapshotTaken(state=VALUE), '{"state":{"a":1}}'),
]


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        pytest.param(payload, text, id=text, marks=pytest.mark.proves(contract))
        for contract, payload, text in EXAMPLES
    ],
)
def test_a_payload_has_the_names_of_the_seed(payload: Payload, text: str) -> None:
    """The recorded JSON has exactly these names; what is empty and optional is left out; and the
    same payload is read back."""
    event = to_event(payload, run_id="r")
    assert bytes(event.data).decode() == text
    assert payload_of(event) == payload


@pytest.mark.proves("K-20", "C-23")
@pytest.mark.parametrize("version", [1, "1", "2026-01", 0, ""])
def test_a_version_is_a_number_or_a_text(version: int | str) -> None:
    """Both are read, and stay what they were."""
    event = to_event(payloads.WorkflowStarted(workflow_name="w", version=version), run_id="r")
    read = payload_of(event)
    assert isinstance(read, payloads.WorkflowStarted)
    assert read.version == version
    assert type(read.version) is type(version)


@pytest.mark.proves("K-02", "K-17", "C-23")
def test_every_type_has_one_payload() -> None:
    """There is a payload for each type, the snapshot's included, and a type for each payload."""
    assert set(PAYLOADS) == set(EventType)
    assert len(set(PAYLOADS.values())) == len(PAYLOADS)


@pytest.mark.proves("K-01", "K-17")
def test_an_event_is_made_from_its_payload() -> None:
    """The type follows from the payload; the rest of the envelope is given."""
    event = to_event(
        payloads.StepCompleted(duration_ns=5),
        run_id="r",
        step_name="charge",
        output=VALUE,
        timestamp=MOMENT,
        metadata={"trace": "1"},
    )
    assert (event.type, event.run_id, event.step_name) == ("step.completed", "r", "charge")
    assert (event.output, event.timestamp, event.metadata) == (VALUE, MOMENT, {"trace": "1"})


@pytest.mark.proves("K-16")
def test_a_payload_of_the_future_is_read_as_far_as_it_is_known() -> None:
    """Fields that we do not know are ignored."""
    event = Event(type="workflow.failed", run_id="r", data=Raw(b'{"error":"no","code":7}'))
    assert payload_of(event) == payloads.WorkflowFailed(error="no")


@pytest.mark.proves("K-15", "K-16", "C-25")
@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("of the future", b"{}"),
        ("workflow.failed", b""),
        ("workflow.failed", b"null"),
        ("workflow.failed", b"{}"),
        ("workflow.failed", b'{"error":7}'),
        ("workflow.failed", b'{"error":"no"'),
        ("workflow.failed", b'{"error":"\xff"}'),
        ("workflow.completed", b"[" * 100_000),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_where(type: str, data: bytes) -> None:
    """An unknown type or damaged data raises `Undecodable`, never something else, and never
    reads as nothing."""
    event = Event(type=type, run_id="run-7", sequence=42, data=Raw(data))
    with pytest.raises(Undecodable, match=r"event 42 of run 'run-7'"):
        payload_of(event)


@pytest.mark.proves("K-01")
def test_payloads_are_values() -> None:
    """A payload cannot be changed and is equal to one that says the same."""
    one = payloads.StepFailedEvent(error="no", attempt=1, will_retry=True)
    assert one == msgspec.structs.replace(one)
    with pytest.raises(AttributeError):
        one.error = "other"  # type: ignore[misc]
