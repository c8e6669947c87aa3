"""Moves between stores, and counts, broken."""

from __future__ import annotations

from outlast.testing.mutation import Mutant

MOVER = "moving/mover.py"
LANDING = "moving/landing.py"
MOVES = "moving/moves.py"
CARGO = "moving/cargo.py"
SEALING = "moving/sealing.py"
MOVING = tuple(
    f"tests/moving/test_moving.py::test_{name}"
    for name in (
        "whoever_asks_is_told_where",
        "only_what_matches_is_moved_and_with_its_family",
        "an_id_that_is_taken_there_stays_here",
        "killed_before_any_write",
    )
)
COUNTS = ("tests/conformance/test_sqlite.py::TestSqliteStore",)

GONE_ON = ("tests/moving/test_gone_on.py",)
DISTURBED = ("tests/moving/test_disturbed.py",)

MUTANTS = [
    Mutant(
        "moving: a store is moved onto itself",
        MOVES,
        '    if await source.recall("move", mark) is not None:',
        "    if False:",
        DISTURBED,
    ),
    Mutant(
        "moving: a life that was not moved is forgotten",
        MOVER,
        "            if run.uid != brought.uid:",
        "            if False:",
        DISTURBED,
    ),
    Mutant(
        "moving: two lives are mixed",
        MOVER,
        "            if [one and one.uid for one in now] == [run.uid for run in family]:",
        "            if now is not None:",
        DISTURBED,
    ),
    Mutant(
        "moving: a run goes back to where it is sealed",
        LANDING,
        "    if there is not None and is_sealed(there):",
        "    if False:",
        DISTURBED,
    ),
    Mutant(
        "moving: what is sealed for elsewhere is brought here too",
        MOVER,
        "                if run is not None and is_sealed(run):",
        "                if False:",
        DISTURBED,
    ),
    Mutant(
        "moving: what has arrived is brought again",
        LANDING,
        "            if there is not None and there.uid == run.uid:",
        "            if there is not None and there.uid == run.uid and False:",
        MOVING,
    ),
    Mutant(
        "moving: an id that is taken is taken all the same",
        MOVER,
        "            if there is not None and there.uid != run.uid and there.moved_to is None:",
        "            if False:",
        MOVING,
    ),
    Mutant(
        "moving: what another mover has left is not settled",
        LANDING,
        "            if there is None or there.uid != cargo.run.uid or not is_held(there):",
        "            if True:",
        MOVING,
    ),
    Mutant(
        "moving: what came and has gone on is brought again",
        MOVER,
        "        if await self._source.recall(ARRIVED, first.uid) is None:",
        "        if True:",
        GONE_ON,
    ),
    Mutant(
        "moving: a family that is not all there is moved on",
        MOVER,
        "        if is_held(run) and run.claimed_until and run.claimed_until > await self._source.now():",
        "        if False:",
        GONE_ON,
    ),
    Mutant(
        "moving: what was moved on comes again",
        MOVER,
        "            if known.get(root) != uid and await self._life_in(root) == lives[root]",
        "            if False",
        GONE_ON,
    ),
    Mutant(
        "moving: what has come is not held on",
        "moving/holding.py",
        "        if since >= seconds / 3 or await self._is_old(new, seconds):",
        "        if False:",
        ("tests/moving/test_holding.py",),
    ),
    Mutant(
        "moving: a dead task comes alive",
        CARGO,
        "            dead=() if ended else tuple(self.dead),",
        "            dead=(),",
        MOVING,
    ),
    Mutant(
        "moving: what is begun is not finished first",
        MOVES,
        "            if run.moved_to is None or is_sealed(run):",
        "            if run.moved_to is None:",
        MOVING,
    ),
    Mutant(
        "moving: the seal is brought along",
        CARGO,
        "    cargo.events = cargo.events[:-1]",
        "    cargo.events = list(cargo.events)",
        MOVING,
    ),
    Mutant(
        "moving: what was consumed can be sent again",
        CARGO,
        "            for id in (() if ended else self.receipts)",
        "            for id in (() if ended else self.receipts) if id in numbered",
        MOVING,
    ),
    Mutant(
        "moving: tasks stay behind",
        SEALING,
        "        tasks=tuple(Raw(to_json(task)) for task in owned.tasks),",
        "        tasks=(),",
        MOVING,
    ),
    Mutant(
        "moving: timers stay behind",
        SEALING,
        "        timers=tuple(timers),",
        "        timers=(),",
        MOVING,
    ),
    Mutant(
        "moving: facts stay behind",
        CARGO,
        "        fact = None if hash in seals else await store.find_fact(hash, root=root)",
        "        fact = None",
        MOVING,
    ),
    Mutant(
        "moving: whoever asks is not told where",
        "client/moves.py",
        "    if run.moved_to is not None:\n        raise Moved(run_id, run.moved_to)\n    return run",
        "    return run",
        MOVING,
    ),
    Mutant(
        "moving: what refuses in place of a run that is back is taken for the run",
        "client/moves.py",
        "        if not await has_come(store, run_id, refusal):\n            raise refusal",
        "        raise refusal",
        ("tests/moving/test_come_back.py",),
    ),
    Mutant(
        "counts: a run that turns is counted twice",
        "stores/sqlite/book.py",
        "        self._count(row, -1)\n        row.workflow, row.status = workflow, status",
        "        row.workflow, row.status = workflow, status",
        COUNTS,
    ),
    Mutant(
        "counts: what is deleted is counted on",
        "stores/sqlite/deleting.py",
        "    add_counts(connection, {pair: -number for pair, number in gone.items()})",
        "    add_counts(connection, {})",
        COUNTS,
    ),
    Mutant(
        "a life that came, ended and was deleted comes again",
        "moving/landing.py",
        "        return await self._target.recall(LANDED, cargo.landing_key) is not None",
        "        return False",
        ("tests/moving/test_gone_on.py",),
    ),
    Mutant(
        "what has come may go on before that is on record",
        "moving/landing.py",
        "                within = UNMARKED_SECONDS if self._once else ttl",
        "                within = ttl",
        ("tests/moving/test_gone_on.py",),
    ),
]
