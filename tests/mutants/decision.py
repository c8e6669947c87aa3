"""What decides whether a commit may be written, broken."""

from __future__ import annotations

from outlast.testing.mutation import Mutant

FILE = "model/decision.py"
CHECKS = "model/checks.py"
TESTS = ("tests/conformance/test_memory.py",)

MUTANTS = [
    Mutant(
        "no fence: any token commits",
        FILE,
        "        if commit.token != head.token:",
        "        if commit.token is None:",
        TESTS,
    ),
    Mutant(
        "a commit without token is accepted",
        FILE,
        "    if not commit.force and (head.token or commit.token is not None):",
        "    if not commit.force and commit.token is not None:",
        TESTS,
    ),
    Mutant(
        "a token is asked of a run never claimed only",
        FILE,
        "(head.token or commit.token is not None):",
        "head.token:",
        TESTS,
    ),
    Mutant(
        "force does not take the claim",
        FILE,
        "    if not commit.force and (",
        "    if (",
        TESTS,
    ),
    Mutant(
        "an older token is let through",
        FILE,
        "        if commit.token != head.token:",
        "        if commit.token is None or commit.token > head.token:",
        TESTS,
    ),
    Mutant(
        "a gap is allowed",
        FILE,
        "commit.expected != head.sequence:",
        "commit.expected < head.sequence:",
        TESTS,
    ),
    Mutant(
        "an old sequence is allowed",
        FILE,
        "commit.expected != head.sequence:",
        "commit.expected > head.sequence:",
        TESTS,
    ),
    Mutant(
        "the revision is not compared",
        FILE,
        "    if commit.revision is not None and commit.revision != head.revision:",
        "    if commit.revision is not None and commit.revision > head.revision:",
        TESTS,
    ),
    Mutant(
        "a repeated commit is not recognised",
        FILE,
        "    if head is None or head.commit_id != commit.id:",
        "    if head is None or True:",
        TESTS,
    ),
    Mutant(
        "every commit is taken for a repeated one",
        FILE,
        "    if head is None or head.commit_id != commit.id:",
        "    if head is None or not head.commit_id:",
        TESTS,
    ),
    Mutant(
        "a closed run accepts events",
        FILE,
        "    if head.status.terminal and commit.reopens and not replaces:",
        "    if head.status.terminal and commit.starts and not replaces:",
        TESTS,
    ),
    Mutant(
        "a closed run cannot be replaced",
        FILE,
        "commit.reopens and not replaces:",
        "commit.reopens:",
        TESTS,
    ),
    Mutant(
        "another life is written to",
        FILE,
        "    if commit.uid is not None and commit.uid != head.uid:",
        "    if commit.uid is not None and not head.uid:",
        TESTS,
    ),
    Mutant(
        "a taken id is begun again",
        FILE,
        "commit.creation is Creation.NEW:",
        "commit.creation is Creation.UPSERT:",
        TESTS,
    ),
    Mutant(
        "a life is begun again by a late retry",
        FILE,
        "commit.create.uid == head.uid and head.revision:",
        "commit.create.uid == head.uid and not head.uid:",
        TESTS,
    ),
    Mutant(
        "a change of the time to wake up does not park",
        FILE,
        "    return change is not None and change.runnable_at is not UNSET",
        "    return change is not None and change.runnable_at is None",
        TESTS,
    ),
    Mutant(
        "audit lines cannot follow the end",
        "model/commit.py",
        "            or self.fired\n            or self.hold",
        "            or self.fired\n            or self.hold\n            or self.entries",
        TESTS,
    ),
    Mutant(
        "timers can be set after the end",
        "model/commit.py",
        "            or self.timers\n",
        "",
        TESTS,
    ),
    Mutant(
        "two commits of one run in a batch",
        CHECKS,
        "        if commit.run_id in runs:",
        "        if commit.run_id in ():",
        TESTS,
    ),
    Mutant(
        "sequences within a commit are not compared",
        CHECKS,
        "        if event.sequence and expected is not None and event.sequence != expected + position:",
        "        if event.sequence and expected is not None and event.sequence <= expected:",
        TESTS,
    ),
    Mutant(
        "one event id twice in a commit",
        CHECKS,
        "        if not event.id or event.id in ids:",
        "        if not event.id:",
        TESTS,
    ),
    Mutant(
        "a fact under a false name",
        CHECKS,
        "    if fact.hash != hash_of(fact.data):",
        "    if len(fact.hash) != len(hash_of(fact.data)):",
        TESTS,
    ),
    Mutant(
        "a filter takes True for 1",
        "model/query.py",
        "    return type(left) is type(right) and left == right",
        "    return left == right",
        TESTS,
    ),
]
