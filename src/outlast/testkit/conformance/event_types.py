"""Events: every type, with all of its fields, comes back as it was recorded."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec import Raw

from outlast.model import Event, EventType, payloads
from outlast.model.event import payload_of, to_event
from outlast.model.payloads import Payload
from outlast.ports import Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import begin, event

MOMENT = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
VALUE = Raw(b'{"b": [1, 2.50], "a": null}')

EXAMPLES: list[tuple[str, Payload]] = [
    ("K-20", payloads.WorkflowStarted(workflow_name="order", version=3, input=VALUE)),
    ("K-20", payloads.WorkflowStarted(workflow_name="order", version="3.1", input=VALUE)),
    ("K-21", payloads.WorkflowCompleted(output=VALUE)),
    ("K-22", payloads.WorkflowFailed(error="card declined\x00 \N{LEFT SINGLE QUOTATION MARK}")),
    ("K-23", payloads.WorkflowCancelled(reason="by hand")),
    ("K-24", payloads.StepStarted(attempt=2, input=VALUE)),
    ("K-25", payloads.StepCompleted(duration_ns=2**53 + 1)),
    ("K-26", payloads.StepFailedEvent(error="timeout", attempt=3, will_retry=True)),
    ("K-27", payloads.BranchEvaluated(branch_name="risk", choice="high")),
    ("K-28", payloads.SignalWaiting(signal_name="paid", timeout_at=MOMENT)),
    ("K-29", payloads.SignalReceived(signal_name="paid", payload=VALUE)),
    ("K-30", payloads.SignalTimeoutEvent(signal_name="paid")),
    ("K-31", payloads.ChildSpawned(child_run_id="r~c", workflow_name="ship", input=VALUE)),
    ("K-32", payloads.ChildCompleted(child_run_id="r~c", output=VALUE)),
    ("K-33", payloads.ChildFailedEvent(child_run_id="r~c", error="lost")),
    ("K-34", payloads.MapStarted(item_count=1000)),
    ("K-35", payloads.MapCompleted(results=Raw(b"[1,null,3]"))),
    ("K-36", payloads.MapFailedEvent(failed_index=7, error="seventh")),
    ("K-37", payloads.CompensationStarted(trigger_step="ship", steps_to_undo=["pay", "book"])),
    ("K-38", payloads.CompensationCompleted(steps_compensated=["pay", "book"])),
    ("K-39", payloads.CompensationFailed(failed_step="pay", error="no refund")),
    ("K-40", payloads.SnapshotTaken(state=VALUE)),
    ("K-17", payloads.MapProgress(started=9, completed=[1], results=[VALUE], failed=[(4, "no")])),
    ("K-17", payloads.TimerStarted(fire_at=MOMENT)),
    ("K-17", payloads.TimerFired()),
    ("K-17", payloads.TimerCancelled()),
    ("K-17", payloads.WorkflowContinued(input=VALUE)),
    ("K-17", payloads.CancelRequested(reason="by hand")),
    ("K-17", payloads.OperationAbandoned()),
    ("K-17", payloads.StepProgress(attempt=2, details=VALUE)),
    ("K-17", payloads.StepLost(attempt=2)),
    ("K-17", payloads.HaltStarted(data=VALUE)),
    ("K-17", payloads.HaltStarted(data=VALUE, id="a", to="finance", due_at=MOMENT, schema=VALUE)),
    ("K-17", payloads.HaltResumed(value=VALUE)),
    ("K-17", payloads.HaltResumed(value=VALUE, id="b", by="ann", at=MOMENT)),
    ("K-17", payloads.HaltReassigned(to="cfo")),
    ("K-17", payloads.ScopeStarted()),
    ("K-17", payloads.ScopeCompleted(output=VALUE)),
    ("K-17", payloads.ScopeFailedEvent(error="no", error_type="ValueError")),
    ("K-17", payloads.LoopIterated(iteration=3, state=VALUE)),
    ("K-17", payloads.UpdateAccepted(update_id="u", name="price", input=VALUE)),
    ("K-17", payloads.UpdateCompleted(update_id="u", output=VALUE)),
    ("K-17", payloads.MessageRejected(kind="signal", name="paid", value=VALUE, error="no")),
    ("K-17", payloads.WorkflowMoved(moved_to="sqlite:///other.db", state="0" * 64)),
]


class EventTypes(StoreContract):
    """The envelope and what is in it."""

    @pytest.mark.proves("K-02", "K-14")
    @pytest.mark.parametrize(
        "payload",
        [
            pytest.param(payload, id=type(payload).__name__, marks=pytest.mark.proves(contract))
            for contract, payload in EXAMPLES
        ],
    )
    async def test_every_type_of_event_comes_back(self, store: Store, payload: Payload) -> None:
        """What an event says is read back typed and equal, from the same bytes."""
        written = to_event(payload, run_id="r")
        await begin(store, "r", written)
        (read,) = await store.history("r")
        assert (read.type, bytes(read.data)) == (written.type, bytes(written.data))
        assert payload_of(read) == payload

    @pytest.mark.proves("K-02")
    async def test_all_types_fit_in_one_history(self, store: Store) -> None:
        """Every type that outlast knows can follow every other."""
        await begin(store, "r", *(event("r", type=type) for type in EventType))
        assert [one.type for one in await store.history("r")] == list(EventType)

    @pytest.mark.proves("K-01", "K-14")
    async def test_an_event_with_all_fields_comes_back(self, store: Store) -> None:
        """Every field of the envelope is stored."""
        full = Event(
            type="step.completed",
            run_id="r",
            id="0192f0c1-0000-7000-8000-000000000001",
            sequence=1,
            version=1,
            step_name="charge card#1",
            data=Raw(b'{"duration_ns":12}'),
            output=VALUE,
            timestamp=MOMENT,
            metadata={"trace": "00-ab-01", "": "empty key", "empty value": "", "ключ": "✓"},
        )
        await begin(store, "r", full)
        assert await store.history("r") == [full]

    @pytest.mark.proves("K-01", "K-14")
    async def test_an_event_with_few_fields_comes_back(self, store: Store) -> None:
        """What was left out has its default: no output is None, not null."""
        await begin(store, "r", Event(type="step.started", run_id="r"))
        (read,) = await store.history("r")
        assert (read.step_name, bytes(read.data), read.output, read.metadata) == (
            "",
            b"{}",
            None,
            {},
        )
        assert read.id

    @pytest.mark.proves("K-01", "K-14")
    async def test_an_output_of_null_is_not_the_lack_of_one(self, store: Store) -> None:
        """A step that returned null differs from an event without output."""
        await begin(store, "r", event("r", output=Raw(b"null")), event("r"))
        assert [one.output for one in await store.history("r")] == [Raw(b"null"), None]

    @pytest.mark.proves("K-16")
    async def test_types_and_versions_of_the_future_are_kept(self, store: Store) -> None:
        """The store never looks inside: a type and a schema version it does not know are kept."""
        strange = event("r", type="quantum.entangled", version=99, data=Raw(b'{"new":[]}'))
        await begin(store, "r", strange)
        (read,) = await store.history("r")
        assert (read.type, read.version, read.data) == (strange.type, 99, strange.data)
