"""Decisions: every reason to refuse, as a pure function of commit and head."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from outlast.errors import Conflict, Fenced, NotFound, RunClosed, RunExists
from outlast.model import Change, ClaimOnCreate, Commit, Creation, Entry, Event, Run, Status, Task
from outlast.model.commit import Refusal
from outlast.model.commit_rules import Head, WakeupKind, again, parks, refusal, wakeup_kind_of
from outlast.model.run_contents import Item, Send
from outlast.model.times import EPOCH, NOW

HEAD = Head("uid", Status.RUNNING, 3, 5, 7, "last")
NEVER_CLAIMED = replace(HEAD, token=0)
ENDED = replace(HEAD, status=Status.COMPLETED)
EVENT = Event(type="t", run_id="r")
MINE = Commit(run_id="r", token=7, events=(EVENT,))
RUN = Run(id="r", uid="new")


@pytest.mark.parametrize(
    ("commit", "head", "expected"),
    [
        pytest.param(MINE, None, NotFound, id="no such run", marks=pytest.mark.proves("R-21")),
        pytest.param(
            Commit(run_id="r", create=RUN),
            HEAD,
            RunExists,
            id="taken",
            marks=pytest.mark.proves("I11"),
        ),
        pytest.param(
            replace(MINE, uid="other"),
            HEAD,
            Fenced,
            id="other life",
            marks=pytest.mark.proves("I25"),
        ),
        pytest.param(MINE, ENDED, RunClosed, id="ended", marks=pytest.mark.proves("I18")),
        pytest.param(
            replace(MINE, force=True),
            ENDED,
            RunClosed,
            id="forced",
            marks=pytest.mark.proves("I18"),
        ),
        pytest.param(
            replace(MINE, token=6), HEAD, Fenced, id="superseded", marks=pytest.mark.proves("C-28")
        ),
        pytest.param(
            replace(MINE, token=8),
            HEAD,
            Fenced,
            id="from the future",
            marks=pytest.mark.proves("I5"),
        ),
        pytest.param(
            replace(MINE, token=None), HEAD, Fenced, id="no token", marks=pytest.mark.proves("I5")
        ),
        pytest.param(MINE, NEVER_CLAIMED, Fenced, id="made up", marks=pytest.mark.proves("I5")),
        pytest.param(
            replace(MINE, expected=2), HEAD, Conflict, id="behind", marks=pytest.mark.proves("K-08")
        ),
        pytest.param(
            replace(MINE, expected=4), HEAD, Conflict, id="ahead", marks=pytest.mark.proves("K-08")
        ),
        pytest.param(
            replace(MINE, revision=4),
            HEAD,
            Conflict,
            id="revision",
            marks=pytest.mark.proves("C-12"),
        ),
        pytest.param(
            Commit(run_id="r", create=RUN, expected=1),
            None,
            Conflict,
            id="in the middle",
            marks=pytest.mark.proves("I1"),
        ),
        pytest.param(
            Commit(run_id="r", create=RUN, revision=1),
            None,
            Conflict,
            id="of no revision",
            marks=pytest.mark.proves("C-12"),
        ),
        pytest.param(
            Commit(run_id="r", create=RUN, token=1),
            None,
            Fenced,
            id="a ghost",
            marks=pytest.mark.proves("I4"),
        ),
    ],
)
def test_what_is_refused(commit: Commit, head: Head | None, expected: type[Refusal]) -> None:
    """Each condition that does not hold is a refusal of its own kind."""
    assert isinstance(refusal(commit, head), expected)


@pytest.mark.parametrize(
    ("commit", "head"),
    [
        pytest.param(MINE, HEAD, id="the owner", marks=pytest.mark.proves("C-28")),
        pytest.param(
            replace(MINE, uid="uid", expected=3, revision=5),
            HEAD,
            id="all right",
            marks=pytest.mark.proves("K-08"),
        ),
        pytest.param(
            replace(MINE, token=None),
            NEVER_CLAIMED,
            id="nobody's",
            marks=pytest.mark.proves("C-02"),
        ),
        pytest.param(
            Commit(run_id="r", create=RUN, expected=0),
            None,
            id="new",
            marks=pytest.mark.proves("C-02"),
        ),
        pytest.param(
            replace(MINE, create=RUN, creation=Creation.UPSERT),
            HEAD,
            id="upsert",
            marks=pytest.mark.proves("M-01"),
        ),
        pytest.param(
            Commit(run_id="r", create=RUN, creation=Creation.REPLACE, token=7),
            ENDED,
            id="replace",
            marks=pytest.mark.proves("I25"),
        ),
        pytest.param(
            replace(MINE, token=None, force=True), HEAD, id="force", marks=pytest.mark.proves("I17")
        ),
        pytest.param(
            Commit(run_id="r", token=7, entries=(Entry(run_id="r", step_id="s", action="a"),)),
            ENDED,
            id="a note after the end",
            marks=pytest.mark.proves("D-08"),
        ),
    ],
)
def test_what_is_allowed(commit: Commit, head: Head | None) -> None:
    """With all conditions met there is nothing to refuse."""
    assert refusal(commit, head) is None


@pytest.mark.proves("K-08", "C-12")
def test_a_conflict_says_what_was_expected_and_what_there_is() -> None:
    """The loser reads from there."""
    by_sequence = refusal(replace(MINE, expected=1), HEAD)
    assert isinstance(by_sequence, Conflict)
    assert (by_sequence.expected, by_sequence.actual, by_sequence.what) == (1, 3, "sequence")
    by_revision = refusal(replace(MINE, revision=1), HEAD)
    assert isinstance(by_revision, Conflict)
    assert (by_revision.expected, by_revision.actual, by_revision.what) == (1, 5, "revision")


@pytest.mark.proves("C-03")
def test_the_last_commit_made_again() -> None:
    """It is recognised by its id, and by nothing else."""
    made = replace(MINE, id="last")
    answer = again(made, HEAD)
    assert answer is not None
    assert (answer.again, answer.uid, answer.sequence, answer.revision, answer.token) == (
        True,
        "uid",
        3,
        5,
        7,
    )
    assert again(MINE, HEAD) is None
    assert again(made, None) is None


@pytest.mark.proves("I18")
@pytest.mark.parametrize(
    ("commit", "reopens"),
    [
        (Commit(run_id="r"), False),
        (Commit(run_id="r", events=(EVENT,)), True),
        (Commit(run_id="r", change=Change()), True),
        (Commit(run_id="r", consumes=(1,)), True),
        (Commit(run_id="r", fired=("t",)), True),
        (Commit(run_id="r", create=RUN, hold=ClaimOnCreate("w", 1)), True),
        (Commit(run_id="r", entries=(Entry(run_id="r", step_id="s", action="a"),)), False),
    ],
)
def test_what_an_ended_run_refuses(commit: Commit, reopens: bool) -> None:
    """Whatever would add to the run; notes about it do not."""
    assert commit.reopens is reopens


@pytest.mark.proves("C-16")
@pytest.mark.parametrize(
    ("change", "parked"),
    [
        (None, False),
        (Change(error="x"), False),
        (Change(runnable_at=None), True),
        (Change(runnable_at=NOW), True),
    ],
)
def test_what_parks_a_run(change: Change | None, parked: bool) -> None:
    """A change that says when the run is due next, or that nobody knows."""
    assert parks(change) is parked


@pytest.mark.parametrize(
    ("commit", "kind"),
    [
        (Commit(run_id="r", events=(EVENT,), token=1), WakeupKind(0)),
        (Commit(run_id="r", tasks=(Task(id="t", run_id="r"),)), WakeupKind.TASKS),
        (Commit(run_id="r", sends=(Send(run_id="s", item=Item(kind="signal")),)), WakeupKind.RUNS),
        (Commit(run_id="r", create=Run(id="r", runnable_at=NOW)), WakeupKind.RUNS),
        (Commit(run_id="r", create=Run(id="r")), WakeupKind(0)),  # a log, which nothing can claim
        (Commit(run_id="r", create=Run(id="r"), hold=ClaimOnCreate("w", 30)), WakeupKind(0)),
        (Commit(run_id="r", change=Change(status=Status.COMPLETED)), WakeupKind.ENDS),
        (Commit(run_id="r", change=Change(runnable_at=None), release=True), WakeupKind.ENDS),
        (Commit(run_id="r", change=Change(runnable_at=EPOCH)), WakeupKind.RUNS | WakeupKind.ENDS),
        (Commit(run_id="r", release=True), WakeupKind.RUNS | WakeupKind.ENDS),
    ],
    ids=lambda value: str(value) if isinstance(value, WakeupKind) else "",
)
def test_which_wakeups_a_commit_sends(commit: Commit, kind: WakeupKind) -> None:
    """A commit that only carries its run on is none; else those get a wake-up whom it concerns."""
    assert wakeup_kind_of([commit]) == kind
