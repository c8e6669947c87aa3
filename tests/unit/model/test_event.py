"""Events: the envelope, its types, and how both stay readable as they grow."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import Raw

from outlast.model import Event, EventType
from outlast.model.json import from_json, to_json

SEED_TYPES = [
    "workflow.started",
    "workflow.completed",
    "workflow.failed",
    "workflow.cancelled",
    "step.started",
    "step.completed",
    "step.failed",
    "branch.evaluated",
    "signal.waiting",
    "signal.received",
    "signal.timeout",
    "child.spawned",
    "child.completed",
    "child.failed",
    "map.started",
    "map.completed",
    "map.failed",
    "compensation.started",
    "compensation.completed",
    "compensation.failed",
    "snapshot",
]
FULL = Event(
    id="0192f0c1-0000-7000-8000-000000000001",
    run_id="r",
    sequence=7,
    version=2,
    type="step.completed",
    step_name="charge",
    data=Raw(b'{"duration_ns":12}'),
    output=Raw(b'{"b": 1, "a": 2}'),
    timestamp=datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
    metadata={"trace": "1"},
    token=3,
)


@pytest.mark.proves("K-02")
@pytest.mark.parametrize("type", SEED_TYPES)
def test_the_types_of_the_seed_keep_their_names(type: str) -> None:
    """Each of the twenty-one types is a constant with the exact text of the seed."""
    assert EventType(type).value == type


@pytest.mark.proves("K-01", "K-14")
def test_an_event_survives_json() -> None:
    """Every field that is set comes back from JSON, user values byte for byte."""
    assert from_json(to_json(FULL), Event) == FULL


@pytest.mark.proves("K-01", "K-14")
@pytest.mark.parametrize("type", [*EventType, "of the future"])
def test_a_bare_event_of_each_type_survives_json(type: str) -> None:
    """What is left out has its default after the way back: no output stays None."""
    event = Event(type=type, run_id="r")
    again = from_json(to_json(event), Event)
    assert again == event
    assert (again.output, again.metadata, bytes(again.data)) == (None, {}, b"{}")


@pytest.mark.proves("K-14")
def test_an_output_of_null_survives_json() -> None:
    """A step that returned null is not a step without output."""
    event = Event(type="step.completed", run_id="r", output=Raw(b"null"))
    again = from_json(to_json(event), Event)
    assert again.output is not None
    assert bytes(again.output) == b"null"


@pytest.mark.proves("K-16")
def test_unknown_fields_are_ignored_and_missing_ones_get_their_default() -> None:
    """An event of a newer version, and one with the least there can be, are both read."""
    newer = b'{"type":"t","run_id":"r","id":"1","version":99,"colour":"red","more":{"x":[1]}}'
    event = from_json(newer, Event)
    assert (event.id, event.version, event.sequence, event.step_name) == ("1", 99, 0, "")


@pytest.mark.proves("K-01")
def test_events_are_values() -> None:
    """An event cannot be changed, has an id of its own, and shares no map with another."""
    one, other = Event(type="t", run_id="r"), Event(type="t", run_id="r")
    assert one.id != other.id
    assert one.metadata is not other.metadata
    with pytest.raises(AttributeError):
        one.sequence = 5  # type: ignore[misc]


@pytest.mark.proves("K-01")
def test_the_fields_of_an_event() -> None:
    """The envelope has the fields that the seed names; the token beside them is ours."""
    assert set(Event.__struct_fields__) == {
        "id",
        "run_id",
        "sequence",
        "version",
        "type",
        "step_name",
        "data",
        "output",
        "timestamp",
        "metadata",
        "token",
    }
    assert msgspec.json.decode(to_json(FULL)).keys() == set(Event.__struct_fields__)
