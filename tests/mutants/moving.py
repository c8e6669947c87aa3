"""MoveResult between stores, and counts, broken."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

MOVER = "transfer/mover.py"
IMPORTER = "transfer/importer.py"
BUNDLE = "transfer/bundle.py"
TOMBSTONE = "transfer/tombstone.py"
MOVING = tuple(
    f"tests/unit/transfer/test_moving.py::test_{name}"
    for name in (
        "whoever_asks_is_told_where",
        "only_what_matches_is_moved_and_with_its_family",
        "an_id_that_is_taken_there_stays_here",
        "killed_before_any_write",
    )
)
COUNTS = ("tests/stores/conformance/test_sqlite.py::TestSqliteStore",)

GONE_ON = ("tests/unit/transfer/test_gone_on.py",)
DISTURBED = ("tests/unit/transfer/test_disturbed.py",)

MUTANTS = [
    Mutant(
        "transfer: a store is moved onto itself",
        MOVER,
        '    if await source.recall("move", mark) is not None:',
        "    if False:",
        DISTURBED,
    ),
    Mutant(
        "transfer: a life that was not moved is forgotten",
        MOVER,
        "            if run.uid != moved.uid:",
        "            if False:",
        DISTURBED,
    ),
    Mutant(
        "transfer: two lives are mixed",
        MOVER,
        "            if [one and one.uid for one in now] == [run.uid for run in family]:",
        "            if now is not None:",
        DISTURBED,
    ),
    Mutant(
        "transfer: a run goes back to where it is sealed",
        IMPORTER,
        "    if there is not None and is_moving(there):",
        "    if False:",
        DISTURBED,
    ),
    Mutant(
        "transfer: what is sealed for elsewhere is moved here too",
        MOVER,
        "                if run is not None and is_moving(run):",
        "                if False:",
        DISTURBED,
    ),
    Mutant(
        "transfer: what has arrived is moved again",
        IMPORTER,
        "            if there is not None and there.uid == run.uid:",
        "            if there is not None and there.uid == run.uid and False:",
        MOVING,
    ),
    Mutant(
        "transfer: an id that is taken is taken all the same",
        MOVER,
        "            if there is not None and there.uid != run.uid and there.moved_to is None:",
        "            if False:",
        MOVING,
    ),
    Mutant(
        "transfer: what another mover has left is not settled",
        IMPORTER,
        "            if there is None or there.uid != bundle.run.uid or not is_arriving(there):",
        "            if True:",
        MOVING,
    ),
    Mutant(
        "transfer: what arrived and has gone on is moved again",
        MOVER,
        "        if await self._source.recall(ARRIVED, first.uid) is None:",
        "        if True:",
        GONE_ON,
    ),
    Mutant(
        "transfer: a family that is not all there is moved on",
        MOVER,
        "        if is_arriving(run) and run.claimed_until and run.claimed_until > await self._source.now():",
        "        if False:",
        GONE_ON,
    ),
    Mutant(
        "transfer: what was moved on comes again",
        MOVER,
        "            if known.get(root) != uid and await self._buried_life(root) == lives[root]",
        "            if False",
        GONE_ON,
    ),
    Mutant(
        "transfer: what has come is not held on",
        IMPORTER,
        "        if since >= seconds / 3 or await self._expires_soon(new, seconds):",
        "        if False:",
        ("tests/unit/transfer/test_holding.py",),
    ),
    Mutant(
        "transfer: a dead task comes alive",
        BUNDLE,
        "            dead=() if ended else tuple(self.dead),",
        "            dead=(),",
        MOVING,
    ),
    Mutant(
        "transfer: what is begun is not finished first",
        MOVER,
        "            if run.moved_to is None or is_moving(run):",
        "            if run.moved_to is None:",
        MOVING,
    ),
    Mutant(
        "transfer: the state_hash is moved along",
        BUNDLE,
        "    bundle.events = bundle.events[:-1]",
        "    bundle.events = list(bundle.events)",
        MOVING,
    ),
    Mutant(
        "transfer: what was consumed can be sent again",
        BUNDLE,
        "            for id in (() if ended else self.receipts)",
        "            for id in (() if ended else self.receipts) if id in numbered",
        MOVING,
    ),
    Mutant(
        "transfer: tasks stay behind",
        TOMBSTONE,
        "        tasks=tuple(Raw(to_json(task)) for task in contents.tasks),",
        "        tasks=(),",
        MOVING,
    ),
    Mutant(
        "transfer: timers stay behind",
        TOMBSTONE,
        "        timers=tuple(timers),",
        "        timers=(),",
        MOVING,
    ),
    Mutant(
        "transfer: facts stay behind",
        BUNDLE,
        "        fact = None if hash in state_hashes else await store.find_fact(hash, root=root)",
        "        fact = None",
        MOVING,
    ),
    Mutant(
        "transfer: whoever asks is not told where",
        "client/moved_runs.py",
        "    if run.moved_to is not None:\n        raise Moved(run_id, run.moved_to)\n    return run",
        "    return run",
        MOVING,
    ),
    Mutant(
        "transfer: what refuses in place of a run that is back is taken for the run",
        "client/moved_runs.py",
        "        if not await has_come(store, run_id, refusal):\n            raise refusal",
        "        raise refusal",
        ("tests/unit/transfer/test_come_back.py",),
    ),
    Mutant(
        "counts: a run that turns is counted twice",
        "stores/sqlite/unit_of_work.py",
        "        self._count(row, -1)\n        row.workflow, row.status = workflow, status",
        "        row.workflow, row.status = workflow, status",
        COUNTS,
    ),
    Mutant(
        "counts: what is deleted is counted on",
        "stores/sqlite/delete.py",
        "    add_counts(connection, {pair: -number for pair, number in gone.items()})",
        "    add_counts(connection, {})",
        COUNTS,
    ),
    Mutant(
        "a life that arrived, ended and was deleted comes again",
        IMPORTER,
        "        return await self._target.recall(ARRIVED_LIFE, bundle.arrival_key) is not None",
        "        return False",
        ("tests/unit/transfer/test_gone_on.py",),
    ),
    Mutant(
        "what has come may go on before that is on record",
        IMPORTER,
        "                within = UNRECORDED_LEASE_S if self._once else ttl",
        "                within = ttl",
        ("tests/unit/transfer/test_gone_on.py",),
    ),
]
