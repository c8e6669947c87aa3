"""crash_everywhere: checks that a workflow ends the same way wherever its process crashes.

::

    async def test_checkout_survives() -> None:
        await crash_everywhere(checkout, order, actions=[lambda run: run.signal("approve")])

The workflow first runs without a crash, in memory and in virtual time, and the sweep counts every store
call. Then it runs again for each call and each kind of crash: the process dies before the call, dies
after it, or gets an error although the call was carried out. A new process takes over when the lease
of the dead one has expired. The outcome must always be the same: results, histories up to the number
of attempts, and what `observe` returns; and no recorded step may run again. The sweep runs twice: as in
production, and with a snapshot and an eviction at every commit, so that a short workflow covers what
happens to a long one (`RESIDENCIES`). Each process has its own random seed, the same in each sweep.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from outlast.decorators import Workflow
from outlast.engine.replay.replay_log import DEFAULT_RESIDENCY, ResidencyPolicy
from outlast.model.event import Event
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.testing.crashable_process import Crash
from outlast.testing.scenario_result import Ending, differences, unstable
from outlast.testing.scenario_runner import Action, Scenario, ScenarioResult, run_scenario
from outlast.testing.virtual_clock import START

SNAPSHOTS = ResidencyPolicy(snapshot_after=2, growth=0)
EVICTIONS = ResidencyPolicy(evicts=True)
HARSH = ResidencyPolicy(snapshot_after=2, growth=0, evicts=True)

RESIDENCIES = {
    "usual": DEFAULT_RESIDENCY,
    "snapshots": SNAPSHOTS,
    "evictions": EVICTIONS,
    "both": HARSH,
}


__all__ = [
    "DEFAULT_RESIDENCY",
    "EVICTIONS",
    "HARSH",
    "RESIDENCIES",
    "SNAPSHOTS",
    "ResidencyPolicy",
    "residency_for",
]

SWEPT = (DEFAULT_RESIDENCY, HARSH)
EVERY_CRASH = tuple(Crash)
SHOWN = 3


class CrashesDiffer(AssertionError):
    """A crash changed the outcome. `findings` lists each such crash with its differences."""

    def __init__(self, name: str, crashes: int, findings: Sequence[tuple[str, list[str]]]) -> None:
        lines = [f"{len(findings)} of {crashes} crashes change the outcome of {name!r}"]
        for crash, changes in findings[:SHOWN]:
            lines += ["", f"{crash}:", *(f"  - {change}" for change in changes)]
        if len(findings) > SHOWN:
            lines += ["", f"… and {len(findings) - SHOWN} more: see `findings`"]
        super().__init__("\n".join(lines))
        self.findings = list(findings)


@dataclass
class CrashSweep:
    """The result of a sweep: how the workflow ends without a crash, its history, the store calls in
    all residencies, and the number of crashes. `unstable` names what was not compared, because it
    differs between two runs without a crash or was ignored."""

    ending: Ending
    history: list[Event]
    store_calls: list[str]
    crashes: int = 0
    unstable: set[str] = field(default_factory=set)


async def crash_everywhere(
    workflow: Workflow[..., Any],
    *args: Any,
    kwargs: dict[str, Any] | None = None,
    id: str = "run",
    actions: Iterable[Action] = (),
    workflows: Iterable[Workflow[..., Any]] = (),
    setup: Callable[[], object] | None = None,
    observe: Callable[[], object] | None = None,
    store: Callable[[Clock], Store] | None = None,
    crashes: Sequence[Crash] = EVERY_CRASH,
    sample: int | None = None,
    seed: int = 0,
    strict: bool = False,
    ignore: Collection[str] = (),
    residencies: Iterable[ResidencyPolicy] = SWEPT,
    **options: Any,
) -> CrashSweep:
    """Crash a workflow at every store call and compare the outcomes; raise `CrashesDiffer` on a difference.

    `actions` are called one after the other with a handle of the run, each when the run waits for a
    signal or a halt; `At` calls one at a time instead. `workflows` are those that it starts as
    children. `setup` is called before each run, to reset external state; `observe` after it, to
    return external state for the comparison. `store` makes a new store for each run. `sample` limits
    the number of crashes, chosen by `seed`. With `strict` the histories must agree in the order of
    all events; a timer that races with a lease expiry may change that order.
    `ignore` names what may differ, as `CrashSweep.unstable` does: ``run.result``, ``observed``.
    `residencies` are swept one after the other: when snapshots are written, and whether runs stay
    in memory; each tries `sample` crashes. `options` are those of `outlast.App`.
    """
    scenario = Scenario(
        workflow=workflow,
        args=args,
        kwargs=kwargs or {},
        id=id,
        actions=tuple(actions),
        workflows=tuple(dict.fromkeys((workflow, *workflows))),
        setup=setup,
        observe=observe,
        store=store,
        options=options,
    )
    plain = await run_scenario(scenario)
    _raise_if_broken(workflow.name, plain)
    # A second run without a crash, at another time and with another uid, shows what is unstable.
    other = await run_scenario(scenario, start=START + timedelta(days=1, seconds=31))
    sweep = CrashSweep(
        ending=plain.ending,
        history=plain.histories.get(id, []),
        store_calls=[],
        unstable=unstable(plain.ending, other.ending) | set(ignore),
    )
    findings: list[tuple[str, list[str]]] = []
    for residency in residencies:
        resident = replace(scenario, options={"residency": residency, **options})
        calm = plain if residency == DEFAULT_RESIDENCY else await run_scenario(resident)
        changes = differences(plain, calm, ignore=sweep.unstable, strict=strict)
        if changes:
            findings.append((f"without any crash, {_suffix(residency)}", changes))
        sweep.store_calls += calm.store_calls
        places = [
            (number, crash) for number in range(1, len(calm.store_calls) + 1) for crash in crashes
        ]
        if sample is not None and sample < len(places):
            places = sorted(random.Random(seed).sample(places, sample))
        for place in places:
            result = await run_scenario(resident, crash_point=_At(*place), seed=place)
            if result.crashed_at is not None:
                sweep.crashes += 1
                changes = differences(plain, result, ignore=sweep.unstable, strict=strict)
                if changes:
                    findings.append((f"{result.crashed_at}{_suffix(residency, ', ')}", changes))
    if findings:
        raise CrashesDiffer(workflow.name, sweep.crashes, findings)
    return sweep


def residency_for(number: int) -> ResidencyPolicy:
    """One of the policies, by number."""
    kinds = list(RESIDENCIES.values())
    return kinds[number % len(kinds)]


def _suffix(residency: ResidencyPolicy, before: str = "") -> str:
    return "" if residency == DEFAULT_RESIDENCY else f"{before}with {residency}"


class _At:
    """Crashes at the store call with one number."""

    def __init__(self, number: int, crash: Crash) -> None:
        self._number = number
        self._crash = crash

    def __call__(self, number: int, what: str) -> Crash | None:
        return self._crash if number == self._number else None


def _raise_if_broken(name: str, plain: ScenarioResult) -> None:
    if plain.violations:
        raise CrashesDiffer(name, 0, [("without any crash", plain.violations)])
