"""What a campaign went through, in figures; and all there is to see of a round that went wrong."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import msgspec

from outlast.model.event import payload_of
from tests.campaigns.chaos.round import Left
from tests.campaigns.chaos.verdict import executions, takeovers
from tests.campaigns.engine_kills.verdict import given_up

SWEEP = 1.2
"""Seconds between two looks of a worker for work that nobody sent it for."""


class Tally:
    """Figures of one round, or of several."""

    def __init__(self, lease: float) -> None:
        self._bound = lease + SWEEP
        self.counts = Counter[str]()
        self.broken: list[str] = []
        self._takeovers: list[float] = []
        self._leaving: list[float] = []

    def count(self, left: Left, broken: list[str]) -> None:
        """Take in a round."""
        evidence = left.evidence
        bodies = executions(evidence.effects)
        lives: dict[tuple[str, str, str], set[str]] = {}
        for one in bodies:
            lives.setdefault((one.run_id, one.uid, one.key), set()).add(one.process)
        told = Counter(one.what for one in evidence.told)
        faults = Counter(one.what for one in left.faults)
        del faults["killed"]
        stalls = faults.pop("stall", 0)
        self.counts.update(
            {
                "runs": len(evidence.final.runs),
                "events": sum(len(one.events) for one in evidence.final.runs.values()),
                "calls of the store": len(left.ops),
                "faults": sum(faults.values()),
                **{f"× {what}": count for what, count in sorted(faults.items())},
                "stalls": stalls,
                "bodies": len(bodies),
                "cut off": sum(one.ended is None for one in bodies),
                "begun by several": sum(len(found) > 1 for found in lives.values()),
                "starts asked again": told["starting"] - told["started"],
                "signals asked again": told["sending"] - told["sent"],
                "given up": sum(given_up(dumped) for dumped in evidence.final.runs.values()),
                "seconds": round(left.seconds),
            }
        )
        self.broken += broken
        self._takeovers = sorted([*self._takeovers, *takeovers(left)])
        self._leaving = sorted([*self._leaving, *left.leaving])

    def add(self, other: Tally) -> None:
        """Take in the figures of another."""
        self.counts.update(other.counts)
        self.broken += other.broken
        self._takeovers = sorted([*self._takeovers, *other._takeovers])
        self._leaving = sorted([*self._leaving, *other._leaving])

    def figures(self) -> dict[str, float]:
        """All figures."""
        return {
            **self.counts,
            "broken promises": len(self.broken),
            "takeovers": len(self._takeovers),
            "takeover p50": _at(self._takeovers, 0.5),
            "takeover p99": _at(self._takeovers, 0.99),
            "stopping p99": _at(self._leaving, 0.99),
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {what}" for what, count in self.counts.items())
        return (
            f"{counts}; {len(self._takeovers)} takeovers after kill -9: "
            f"p50 {_at(self._takeovers, 0.5):.2f} s, p99 {_at(self._takeovers, 0.99):.2f} s "
            f"(lease + one sweep: {self._bound:.1f} s); told to stop, gone after "
            f"p50 {_at(self._leaving, 0.5):.2f} s, p99 {_at(self._leaving, 0.99):.2f} s; "
            f"{len(self.broken)} broken promises"
        )


def _at(values: list[float], share: float) -> float:
    return values[min(int(share * len(values)), len(values) - 1)] if values else 0.0


def keep(folder: Path, where: Path, left: Left, broken: list[str]) -> None:
    """Save ledgers, faults and the histories of the runs that something is wrong with."""
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    for path in folder.iterdir():
        if path.is_file():
            shutil.copy(path, where)
    (where / "broken").write_text("\n".join(broken) + "\n", encoding="utf-8")
    (where / "faults").write_bytes(b"\n".join(map(msgspec.json.encode, left.faults)) + b"\n")
    named = " ".join(broken)
    with (where / "histories").open("w", encoding="utf-8") as file:
        for id, dumped in left.evidence.final.runs.items():
            if id in named:
                print(dumped.run, file=file)
                for event in dumped.events:
                    told = payload_of(event)
                    print(f"  {event.sequence} {event.timestamp} {event.token}", end=" ", file=file)
                    print(event.step_name, told, file=file)
