"""Runs: statuses as people write them, changes that touch what they name, where to resume."""

from __future__ import annotations

import pytest
from msgspec import UNSET, Raw

from outlast.errors import InvalidValue
from outlast.model import Change, Run, Status
from outlast.model.run import CHANGEABLE, TERMINAL


@pytest.mark.proves("D-01", "C-04", "M-45")
def test_the_statuses() -> None:
    """One set of statuses for everything that the seeds name, three of them final."""
    assert [status.value for status in Status] == [
        "pending",
        "running",
        "waiting",
        "halted",
        "paused",
        "completed",
        "failed",
        "cancelled",
    ]
    assert {status for status in Status if status.terminal} == TERMINAL
    assert {"completed", "failed", "cancelled"} == TERMINAL


@pytest.mark.proves("C-04", "M-45")
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("canceled", Status.CANCELLED),
        ("cancelled", Status.CANCELLED),
        ("CANCELED", Status.CANCELLED),
        (" Halted ", Status.HALTED),
        *((status.value, status) for status in Status),
    ],
)
def test_a_status_is_read_as_people_write_it(text: str, status: Status) -> None:
    """Both spellings of cancelled, any case, and blanks around it."""
    assert Status.parse(text) is status


@pytest.mark.proves("C-04", "K-15")
@pytest.mark.parametrize("text", ["", "done", "cancel", "running!"])
def test_what_is_no_status_is_refused(text: str) -> None:
    """The error names what there is."""
    with pytest.raises(InvalidValue, match="halted"):
        Status.parse(text)


@pytest.mark.proves("D-40")
@pytest.mark.parametrize(
    ("current_step", "recover_to", "point"),
    [
        (None, None, None),
        ("pay", None, "pay"),
        ("pay", "book", "book"),
        (None, "book", "book"),
        ("pay", "", ""),
    ],
)
def test_where_a_run_resumes(
    current_step: str | None, recover_to: str | None, point: str | None
) -> None:
    """`recover_to`, else `current_step`."""
    assert Run(id="r", current_step=current_step, recover_to=recover_to).resume_point == point


@pytest.mark.proves("D-02", "D-03", "M-45")
def test_the_fields_of_a_run() -> None:
    """The record has a typed field for everything that the seeds name."""
    named = {
        "id",
        "workflow",
        "status",
        "input",
        "ctx",
        "current_step",
        "result",
        "recover_to",
        "halt_data",
        "error",
        "created_at",
        "updated_at",
        "ended_at",
        "sequence",
        "queue",
        "version",
        "definition",
    }
    assert named <= set(Run.__struct_fields__)


@pytest.mark.proves("C-12")
def test_a_change_is_a_patch() -> None:
    """A field left out is not part of it; None is a value."""
    assert Change().values() == {}
    change = Change(error=None, status=Status.FAILED, ctx={})
    assert change.values() == {"status": Status.FAILED, "ctx": {}, "error": None}
    assert change.result is UNSET


@pytest.mark.proves("C-12", "D-06")
def test_a_whole_record_as_a_change() -> None:
    """`Change.of` takes over everything that a caller decides, and nothing that the store keeps."""
    run = Run(id="r", workflow="w", input=Raw(b"1"), attributes={"n": 1}, sequence=9, revision=9)
    values = Change.of(run).values()
    assert set(values) == set(CHANGEABLE)
    assert values["workflow"] == "w"
    assert not {"id", "uid", "parent", "sequence", "revision", "token", "created_at"} & set(values)


@pytest.mark.proves("I25")
def test_every_life_has_a_uid_of_its_own() -> None:
    """Two records of one id are two lives."""
    assert Run(id="r").uid != Run(id="r").uid
