"""What claims promise: I5, I6, I11."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.model.claim import Claim
from outlast.model.commit import Creation
from outlast.testkit.checker.evidence import Case, Fate, Op, Violation, position


def one_committer_per_token(case: Case) -> Iterator[Violation]:
    """I5: a token has one owner, and after a newer claim no commit is written under an older token."""
    owners: dict[int, Claim] = {}
    for _, claim in case.claims:
        known = owners.setdefault(claim.token, claim)
        if known != claim:
            message = f"token {claim.token} was given to {known.owner!r} and to {claim.owner!r}"
            yield Violation("I5", claim.subject, message)
    for id, dumped in case.final.runs.items():
        last = 0
        for event in dumped.events:
            if event.token < last:
                message = f"{position(event)} is of token {event.token}, after one of {last}"
                yield Violation("I5", id, message)
            last = max(last, event.token)
    yield from _written_under_an_old_token(case)


def _written_under_an_old_token(case: Case) -> Iterator[Violation]:
    claims: dict[str, list[tuple[Op, Claim]]] = {}
    for op, claim in _claims_on_runs(case):
        claims.setdefault(claim.run_id, []).append((op, claim))
    for attempt in case.attempts:
        commit = attempt.commit
        if not attempt.fresh or commit.force or commit.creation is Creation.REPLACE:
            continue
        for op, claim in claims.get(commit.run_id, ()):
            newer = commit.token is None or commit.token < claim.token
            if claim.uid == attempt.uid and newer:
                if op.ended < attempt.begun:
                    message = (
                        f"commit {commit.id!r} with token {commit.token} was accepted after "
                        f"{claim.owner!r} had claimed with {claim.token}"
                    )
                    yield Violation("I5", commit.run_id, message)
                    break


def tokens_only_grow(case: Case) -> Iterator[Violation]:
    """I6: every claim has a token greater than any before, and no record goes back."""
    answered = sorted(case.claims, key=lambda one: one[0].ended)
    top, done = 0, 0
    for op, claim in sorted(case.claims, key=lambda one: one[0].begun):
        while done < len(answered) and answered[done][0].ended < op.begun:
            top = max(top, answered[done][1].token)
            done += 1
        if claim.token <= top:
            message = f"got token {claim.token} when {top} had been given out"
            yield Violation("I6", claim.subject, message)
    for before, after in case.lives():
        for name in ("token", "sequence", "revision", "inbox"):
            was, is_now = getattr(before.run, name), getattr(after.run, name)
            if is_now < was:
                yield Violation("I6", before.run.id, f"its {name} went from {was} back to {is_now}")
    for _, claim in _claims_on_runs(case):
        dumped = case.life(claim.run_id, claim.uid)
        if dumped is not None and dumped.run.token < claim.token:
            message = f"token {claim.token} was given out; the record says {dumped.run.token}"
            yield Violation("I6", claim.run_id, message)


def one_start_per_life(case: Case) -> Iterator[Violation]:
    """I11: of many concurrent starts with one id, one creates the run; the others get its uid."""
    begun: dict[str, str] = {}
    for attempt in case.attempts:
        commit = attempt.commit
        if commit.create is None or commit.creation is not Creation.NEW:
            continue
        if attempt.fate is not Fate.OK:
            continue
        if attempt.uid != commit.create.uid:
            message = f"commit {commit.id!r} began life {commit.create.uid!r}, not {attempt.uid!r}"
            yield Violation("I11", commit.run_id, message)
        first = begun.setdefault(commit.run_id, commit.id)
        if first != commit.id and not case.may_be_gone(commit.run_id):
            yield Violation("I11", commit.run_id, f"both {first!r} and {commit.id!r} began it")


def _claims_on_runs(case: Case) -> list[tuple[Op, Claim]]:
    return [(op, claim) for op, claim in case.claims if claim.task_id is None]
