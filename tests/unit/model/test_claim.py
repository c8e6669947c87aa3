"""Claims, facts and other small values: what they know about themselves."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest

from outlast.errors import InvalidValue
from outlast.model import Claim, Commit, Fact, Receipt, Task
from outlast.model.claim import MAX_LEASE, check_ttl
from outlast.model.run_contents import hash_of
from outlast.model.times import EPOCH

LEASE = timedelta(seconds=30)
CLAIM = Claim(owner="w", token=1, claimed_at=EPOCH, expires_at=EPOCH + LEASE, run_id="r")


@pytest.mark.proves("S-24", "S-13")
@pytest.mark.parametrize(
    ("after", "expired"),
    [(timedelta(0), False), (LEASE - timedelta(microseconds=1), False), (LEASE, True)],
)
def test_a_claim_expires_at_its_time(after: timedelta, expired: bool) -> None:
    """Expired is now ≥ expires_at: the moment itself belongs to the others."""
    assert CLAIM.is_expired(EPOCH + after) is expired


@pytest.mark.proves("S-24", "S-13")
def test_a_claim_without_a_lease_never_expires() -> None:
    """However much time passes."""
    claim = Claim(owner="w", token=1, claimed_at=EPOCH)
    assert not claim.is_expired(EPOCH + timedelta(days=100_000))


@pytest.mark.proves("S-24")
def test_a_claim_knows_its_owner_and_its_subject() -> None:
    """It is owned by one, and names the run or the task it is on."""
    assert CLAIM.is_owned_by("w")
    assert not CLAIM.is_owned_by("W")
    assert CLAIM.subject == "run 'r'"
    task = Claim(owner="w", token=1, claimed_at=EPOCH, run_id="r", task_id="t")
    assert task.subject == "task 't'"


@pytest.mark.proves("S-24", "M-45")
def test_the_fields_of_claims_and_tasks() -> None:
    """What the seeds name is there."""
    assert {"run_id", "task_id", "owner", "claimed_at", "expires_at", "token"} <= set(
        Claim.__struct_fields__
    )
    assert {
        "id",
        "kind",
        "run_id",
        "step",
        "name",
        "input",
        "metadata",
        "enqueued_at",
        "attempt",
        "definition",
    } <= set(Task.__struct_fields__)


@pytest.mark.proves("C-11", "S-25")
@pytest.mark.parametrize("ttl", [0.001, 30, 300, MAX_LEASE.total_seconds(), None])
def test_a_possible_lease(ttl: float | None) -> None:
    """From a moment to a day, or none at all."""
    check_ttl(ttl)


@pytest.mark.proves("C-11", "K-15")
@pytest.mark.parametrize("ttl", [0, -1, MAX_LEASE.total_seconds() + 1, float("nan"), float("inf")])
def test_an_impossible_lease(ttl: float) -> None:
    """Nothing, less, or longer than a dead owner should block others."""
    with pytest.raises(InvalidValue):
        check_ttl(ttl)


@pytest.mark.proves("R-13", "C-15")
def test_a_fact_is_named_by_its_content() -> None:
    """The name is the SHA-256 in hex, the same for the same bytes in any tree."""
    fact = Fact.of(b"abc", root="r")
    assert fact.hash == hash_of(b"abc") == hashlib.sha256(b"abc").hexdigest()
    assert Fact.of(b"abc").hash == fact.hash
    assert Fact.of(b"abd").hash != fact.hash


@pytest.mark.proves("C-03")
def test_a_commit_has_an_id_of_its_own() -> None:
    """Made once, kept on every retry."""
    assert Commit(run_id="r").id != Commit(run_id="r").id


@pytest.mark.proves("I16")
def test_a_receipt_says_whether_it_is_the_first() -> None:
    """The default is the first time."""
    assert not Receipt(1).again
