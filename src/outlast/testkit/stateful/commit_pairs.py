"""CommitPairs: turns a recipe into the two commits that it means for the two stores."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from outlast.model.claim import Claim, ClaimOnCreate
from outlast.model.commit import Commit, Creation, Start
from outlast.model.event import Event
from outlast.model.ids import SEPARATOR
from outlast.model.run import Change, Run, Status
from outlast.model.run_contents import Activity, Entry, Item, Send, Snapshot, Task, Timer
from outlast.model.times import EPOCH, NOW
from outlast.testkit.dump import RunDump
from outlast.testkit.stateful.recipes import (
    CHANGES,
    FACTS,
    LONG_AGO,
    OWNERS,
    RECORDS,
    TASKS,
    Recipe,
    later,
)
from outlast.testkit.stateful.world import LEFT, RIGHT, World


class CommitPairs(World):
    """Looks up what the words of a recipe mean now."""

    def commit_pair(self, recipe: Recipe) -> tuple[Commit, Commit]:
        """The commits for the left and the right store: the same but for tokens."""
        run_id, now = recipe.run, self.clock.now()
        here = self.dumps[LEFT].runs.get(run_id)
        consumes = self._consumes(recipe, here)
        common: dict[str, Any] = {
            "run_id": run_id,
            "id": self.fresh("c"),
            "expected": _position(recipe.expected, 0 if here is None else here.run.sequence),
            "revision": _position(recipe.revision, 0 if here is None else here.run.revision),
            "force": recipe.force,
            "events": self._events(recipe, here),
            "change": self._change(recipe),
            "consumes": consumes,
            "seen": self._seen(recipe, here, consumes),
            "release": recipe.release,
            "starts": self._starts(recipe),
            "tasks": self._tasks(recipe),
            "drops": recipe.drops,
            "timers": tuple(
                Timer(run_id=run_id, id=id, fire_at=later(now, delay))
                for id, delay in _last_of_each(recipe.timers).items()
            ),
            "fired": recipe.fired,
            "facts": tuple(FACTS[number] for number in recipe.facts),
            "entries": self._entries(recipe),
            "activities": tuple(
                Activity(id=id, run_id=run_id, status=Status.RUNNING, name=self.fresh("act"))
                for id in recipe.activities
            ),
            "snapshot": self._snapshot(recipe, here),
        }
        if recipe.create is not None:
            common |= self._birth(recipe)
        tokens = self.token(recipe.token, run_id)
        held = self._finishes(recipe)
        left, right = (
            Commit(
                **common,
                uid=self.life(recipe.life, run_id, side),
                token=tokens[side],
                finishes=tuple(pair[side] for pair in held),
                sends=tuple(self.parcel(*words, side) for words in recipe.sends),
            )
            for side in (LEFT, RIGHT)
        )
        return left, right

    def record(self, run_id: str, number: int, due: str, status: Status) -> Run:
        """A record to begin a run with."""
        parent, separator, _ = run_id.rpartition(SEPARATOR)
        when = {"now": NOW, "park": None, "later": later(self.clock.now(), 20)}[due]
        return Run(
            id=run_id,
            uid=self.fresh("u"),
            status=status,
            runnable_at=when,
            parent=parent if separator else None,
            **RECORDS[number],
        )

    def parcel(self, run_id: str, item: str, life: str, side: int) -> Send:
        """An item for a run."""
        uid = self.life(life, run_id, side)
        data = Raw(b'["%s"]' % item.encode())
        return Send(run_id=run_id, item=Item(kind="signal", name="n", id=item, data=data), uid=uid)

    def life(self, word: str, run_id: str, side: int) -> str | None:
        """The uid that a word means on one side."""
        if word == "any":
            return None
        here = self.dumps[side].runs.get(run_id)
        return "nobody" if word == "wrong" or here is None else here.run.uid

    def _birth(self, recipe: Recipe) -> dict[str, Any]:
        return {
            "create": self.record(recipe.run, recipe.record, recipe.due, recipe.born),
            "creation": recipe.create,
            "carry_inbox": recipe.carry and recipe.create is Creation.REPLACE,
            "hold": ClaimOnCreate(OWNERS[0], 10.0) if recipe.hold else None,
        }

    def _events(self, recipe: Recipe, here: RunDump | None) -> tuple[Event, ...]:
        events = [self.event(recipe.run) for _ in range(recipe.events)]
        if recipe.repeat and here is not None and here.events:
            events.append(self.event(recipe.run, id=here.events[0].id))
        return tuple(events)

    def event(self, run_id: str, id: str = "") -> Event:
        """An event of a run, with a unique id."""
        number = self.fresh("e")
        return Event(
            type="step.completed",
            run_id=run_id,
            id=id or number,
            step_name=number,
            data=Raw(b'{"duration_ns":1}'),
            output=Raw(b'"%s"' % number.encode()),
            metadata={"n": number},
        )

    def _change(self, recipe: Recipe) -> Change | None:
        values = {} if recipe.change is None else dict(CHANGES[recipe.change])
        if recipe.status is not None:
            values["status"] = recipe.status
        if recipe.runnable != "keep":
            now = self.clock.now()
            due = {"park": None, "now": NOW, "later": later(now, 20)}
            values["runnable_at"] = due[recipe.runnable]
        return Change(**values) if values else None

    def _consumes(self, recipe: Recipe, here: RunDump | None) -> tuple[int, ...]:
        waiting = [item.number for item in here.inbox] if here is not None else []
        words = {"none": [], "first": waiting[:1], "all": waiting, "wrong": [99]}
        return tuple(words[recipe.consume])

    def _seen(self, recipe: Recipe, here: RunDump | None, consumes: tuple[int, ...]) -> int:
        last = here.run.inbox if here is not None else 0
        return {"none": 0, "consumed": max(consumes, default=0), "all": last}[recipe.seen]

    def _starts(self, recipe: Recipe) -> tuple[Start, ...]:
        starts = []
        for name in recipe.starts:
            id = "c" if name == "own" else f"{recipe.run}{SEPARATOR}{name}"
            if id == recipe.run:
                continue
            child = Run(id=id, uid=self.fresh("u"), workflow="child", parent=recipe.run)
            starts.append(Start(child, (self.event(id),)))
        return tuple(starts)

    def _tasks(self, recipe: Recipe) -> tuple[Task, ...]:
        now = self.clock.now()
        tasks = []
        for number, priority, delay in recipe.tasks:
            queue, id = TASKS[number]
            run_at = later(now, delay) if delay else None
            tasks.append(
                Task(id=id, queue=queue, run_id=recipe.run, priority=priority, run_at=run_at)
            )
        return tuple(tasks)

    def _finishes(self, recipe: Recipe) -> list[tuple[Claim, Claim]]:
        own = [pair for pair in self.task_claims if pair[LEFT].run_id == recipe.run]
        return {"none": [], "latest": own[-1:], "oldest": own[:1]}[recipe.finish]

    def _entries(self, recipe: Recipe) -> tuple[Entry, ...]:
        when = LONG_AGO if recipe.old_entries else EPOCH
        return tuple(
            Entry(run_id=recipe.run, id=self.fresh("l"), step_id="s", action="done", timestamp=when)
            for _ in range(recipe.entries)
        )

    def _snapshot(self, recipe: Recipe, here: RunDump | None) -> Snapshot | None:
        if not recipe.snapshot:
            return None
        sequence = 0 if here is None else here.run.sequence
        data = self.fresh("state").encode() + b"\x00"
        return Snapshot(run_id=recipe.run, sequence=sequence, data=data, definition="d")


def _position(word: str, right: int) -> int | None:
    return {"any": None, "right": right, "wrong": right + 1}[word]


def _last_of_each(pairs: tuple[tuple[str, float], ...]) -> dict[str, float]:
    return dict(pairs)
