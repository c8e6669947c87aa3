"""Small words to tell a history by hand."""

from __future__ import annotations

from itertools import count
from typing import Any

from msgspec.structs import replace

from outlast.model import (
    Change,
    Claim,
    Commit,
    Committed,
    Event,
    Item,
    Receipt,
    Run,
    Send,
    Status,
)
from outlast.testing.virtual_clock import START
from outlast.testkit.checker import Dump, Effect, Evidence, Fate, Op
from outlast.testkit.dump import RunDump

OK, FAILED, UNKNOWN = Fate.OK, Fate.FAILED, Fate.UNKNOWN
END = Change(status=Status.COMPLETED)


def ev(sequence: int, id: str = "", **fields: Any) -> Event:
    """An event of run `r`."""
    base = {"type": "step.started", "run_id": "r", "id": id or f"e{sequence}"}
    return Event(**{**base, "sequence": sequence, **fields})


def life(*events: Event, id: str = "r", uid: str = "u", **fields: Any) -> RunDump:
    """A run with these events, consistent unless a field says otherwise."""
    record = {
        "sequence": len(events),
        "revision": 1,
        "token": max([0, *(event.token for event in events)]),
    }
    own = {name: fields.pop(name) for name in ("inbox", "timers", "entries") if name in fields}
    if "inbox" in own:
        record["inbox"] = max([0, *(item.number for item in own["inbox"])])
    return RunDump(run=Run(id=id, uid=uid, **{**record, **fields}), events=list(events), **own)


def ended(*events: Event, **fields: Any) -> RunDump:
    """A run that is completed."""
    return life(*events, **{"status": Status.COMPLETED, "ended_at": START, **fields})


def seen(*lives: RunDump, **fields: Any) -> Dump:
    """A dump of these runs, with lists that agree."""
    timers = [timer for one in lives for timer in one.timers if not timer.fired]
    return Dump(at=START, runs={one.run.id: one for one in lives}, **{"timers": timers, **fields})


class Story:
    """A log that grows call by call; each call ends before the next begins."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.effects: list[Effect] = []
        self._ticks = count(1)

    def op(self, name: str, fate: Fate, **fields: Any) -> Story:
        """Add one call."""
        begun, over = next(self._ticks), next(self._ticks)
        self.ops.append(Op(**{"name": name, "fate": fate, "begun": begun, "ended": over, **fields}))
        return self

    def commit(
        self, id: str, *events: str | Event, fate: Fate = OK, at: int = 0, **fields: Any
    ) -> Story:
        """A commit of run `r` whose events are named by their ids; `at` is where it ended up."""
        again = fields.pop("again", False)
        uid = fields.pop("life", "u")
        atomic = fields.pop("atomic", False)
        fields.setdefault("run_id", "r")
        own = tuple(
            one if isinstance(one, Event) else ev(0, one, run_id=fields["run_id"]) for one in events
        )
        value = Commit(id=id, events=own, **fields)
        sequence = at or len(events)
        result = Committed(
            run_id=value.run_id, uid=uid, sequence=sequence, revision=1, token=0, again=again
        )
        answer = result if fate is OK else None
        return self.op("commit", fate, value=value, result=answer, atomic=atomic)

    def start(self, id: str = "c0", **fields: Any) -> Story:
        """The commit that begins run `r`."""
        return self.commit(id, **{"create": Run(id="r", uid="u"), **fields})

    def send(
        self,
        item: str,
        number: int = 0,
        *,
        fate: Fate = OK,
        again: bool = False,
        kind: str = "signal",
    ) -> Story:
        """An item for run `r` and the number it got."""
        send = Send(run_id="r", item=Item(kind=kind, id=item))
        return self.op("send", fate, value=send, result=Receipt(number, again) if number else None)

    def claim(self, token: int, owner: str = "w", **fields: Any) -> Story:
        """A claim on run `r` that was handed out."""
        base = {"owner": owner, "token": token, "claimed_at": START, "run_id": "r", "uid": "u"}
        return self.op("claim_runs", OK, result=Claim(**{**base, **fields}))

    def delete(self, run_id: str = "r", *, fate: Fate = OK) -> Story:
        """A deletion that found something."""
        return self.op("delete", fate, value=run_id, result=True if fate is OK else None)

    def effect(self, step: str, *, ends: bool = True) -> Story:
        """The body of a step ran."""
        begun, over = next(self._ticks), next(self._ticks)
        line = Effect(run_id="r", step=step, begun=begun, ended=over if ends else None)
        self.effects.append(line)
        return self

    def overlapping(self) -> Story:
        """All calls so far began before any of them ended."""
        ticks = count(next(self._ticks))
        begun = [replace(op, begun=next(ticks)) for op in self.ops]
        self.ops = [replace(op, ended=next(ticks)) for op in begun]
        self._ticks = ticks
        return self

    def then(self, *dumps: Dump, complete: bool = True) -> Evidence:
        """This log, and what was seen in the store."""
        return Evidence(dumps=dumps, ops=self.ops, effects=self.effects, complete=complete)


def item(number: int, id: str) -> Item:
    """An item that waits in an inbox."""
    return Item(kind="signal", id=id, number=number)
