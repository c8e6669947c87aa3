"""What a store can do beyond the core, and what its acknowledgement survives."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Capability(StrEnum):
    """A declared ability. What a store does not declare must raise `Unsupported`; the conformance
    kit checks both sides."""

    FIND = "find"  # find, run_ids, counts: list and count runs
    INBOX = "inbox"  # send, inbox, and the parts of a commit that consume and send
    CHILDREN = "children"  # starts of a commit
    TASKS = "tasks"  # tasks of a commit, claim_task, find_available_tasks
    TIMERS = "timers"  # timers of a commit, timers, due_timers
    ENTRIES = "entries"  # entries of a commit, entries
    ACTIVITIES = "activities"  # activities of a commit, find_activity, activities
    SNAPSHOTS = "snapshots"  # snapshot of a commit, find_snapshot, drop_snapshot, snapshot_ids
    FACTS = "facts"  # facts of a commit, find_fact, put_fact, drop_fact
    KEYS = "keys"  # remember, recall: idempotency keys
    DELETE = "delete"  # delete, and a commit that replaces a life
    RETENTION = "retention"  # expire: remove what ended long ago
    ATOMIC_BATCH = "atomic_batch"  # commit(atomic=True) over several runs
    OWNER_GONE = "owner_gone"  # detect a crashed owner before its lease expires
    WORKERS = "workers"  # heartbeat, leave, workers: which processes are alive
    MOVE = "move"  # contents, skip_tokens: what a transfer needs


ALL_CAPABILITIES = frozenset(Capability)

COMMIT_CAPABILITIES = ALL_CAPABILITIES - {
    Capability.FIND,
    Capability.KEYS,
    Capability.RETENTION,
    Capability.OWNER_GONE,
    Capability.WORKERS,
    Capability.MOVE,
}
"""Those that a part of a commit may need."""


class Durability(IntEnum):
    """What an acknowledged commit survives."""

    NOTHING = 0  # memory
    PROCESS_CRASH = 1  # the last second or two may be lost when the power fails
    POWER_LOSS = 2  # the node may lose power at any time
    NODE_LOSS = 3  # the node may be lost
