"""crash_everywhere: a workflow that ends the same way wherever its process dies.

::

    async def test_checkout_survives() -> None:
        await crash_everywhere(checkout, order, actions=[lambda run: run.signal("approve")])

The workflow first runs undisturbed, in memory and in virtual time, and every call of the store is
counted. Then it runs again for each call and each way in which a crash can meet it: the process
dies before the call, or after it, or is told an error although the call was carried out. A fresh
process takes over when the lease of the dead one has ended. Whatever the crash, the outcome must be
the same: results, histories up to the number of attempts, and what you `observe` of the world; and
no step that has been recorded may run again. All of it is done twice: as it is in production, and
with a snapshot and an eviction at every commit, so that a short workflow shows what a long one would
do. Each process draws random numbers of its own, the same in each sweep.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from outlast.decorators import Workflow
from outlast.model.event import Event
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.testing.clock import START
from outlast.testing.crashable_process import Crash
from outlast.testing.residency import DEFAULT_RESIDENCY, HARSH, ResidencyPolicy
from outlast.testing.scenario_result import Ending, differences, unstable
from outlast.testing.scenario_runner import Action, Conducted, Scenario, conduct

SWEPT = (DEFAULT_RESIDENCY, HARSH)
EVERY_CRASH = tuple(Crash)
SHOWN = 3


class CrashesDiffer(AssertionError):
    """Some crash changed the outcome. `findings` are the crashes with what each changed."""

    def __init__(self, name: str, crashes: int, findings: Sequence[tuple[str, list[str]]]) -> None:
        lines = [f"{len(findings)} of {crashes} crashes change the outcome of {name!r}"]
        for crash, changes in findings[:SHOWN]:
            lines += ["", f"{crash}:", *(f"  - {change}" for change in changes)]
        if len(findings) > SHOWN:
            lines += ["", f"… and {len(findings) - SHOWN} more: see `findings`"]
        super().__init__("\n".join(lines))
        self.findings = list(findings)


@dataclass
class Sweep:
    """What a sweep did: the undisturbed ending and its history, the calls of the store in all
    residencies, and how many crashes were survived. `unstable` names what no two undisturbed runs had in common, or was
    to be ignored: it was not compared."""

    ending: Ending
    history: list[Event]
    sites: list[str]
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
) -> Sweep:
    """Crash a workflow at every call of the store and compare; `CrashesDiffer` if one matters.

    `actions` are called one after the other with a handle of the run, each as soon as the run
    waits for somebody; `At` gives one a time instead. `workflows` are those that it starts as
    children. `setup` is called before each run, to make the world new; `observe` after it, for
    what the steps have done to the world. `store` makes a fresh store for each run. `sample` tries
    only so many crashes, chosen by `seed`. With `strict` the histories must agree in the order of
    all their events, which a race of timers against the wait for a lease does not always keep.
    `ignore` names what may differ, as `Sweep.unstable` does: ``run.result``, ``observed``.
    `residencies` are swept one after the other: when snapshots are written, and whether runs stay
    in memory; each tries `sample` crashes.
    `options` are those of `outlast.App`.
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
    plain = await conduct(scenario)
    _raise_if_broken(workflow.name, plain)
    # Another day, another uid: what differs now says nothing about crashes.
    other = await conduct(scenario, start=START + timedelta(days=1, seconds=31))
    sweep = Sweep(
        ending=plain.ending,
        history=plain.histories.get(id, []),
        sites=[],
        unstable=unstable(plain.ending, other.ending) | set(ignore),
    )
    findings: list[tuple[str, list[str]]] = []
    for residency in residencies:
        resident = replace(scenario, options={"residency": residency, **options})
        calm = plain if residency == DEFAULT_RESIDENCY else await conduct(resident)
        changes = differences(plain, calm, ignore=sweep.unstable, strict=strict)
        if changes:
            findings.append((f"without any crash, {_told(residency)}", changes))
        sweep.sites += calm.sites
        places = [(number, crash) for number in range(1, len(calm.sites) + 1) for crash in crashes]
        if sample is not None and sample < len(places):
            places = sorted(random.Random(seed).sample(places, sample))
        for place in places:
            conducted = await conduct(resident, doom=_At(*place), luck=place)
            if conducted.struck is not None:
                sweep.crashes += 1
                changes = differences(plain, conducted, ignore=sweep.unstable, strict=strict)
                if changes:
                    findings.append((f"{conducted.struck}{_told(residency, ', ')}", changes))
    if findings:
        raise CrashesDiffer(workflow.name, sweep.crashes, findings)
    return sweep


def _told(residency: ResidencyPolicy, before: str = "") -> str:
    return "" if residency == DEFAULT_RESIDENCY else f"{before}with {residency}"


class _At:
    """Dooms the call with one number."""

    def __init__(self, number: int, crash: Crash) -> None:
        self._number = number
        self._crash = crash

    def __call__(self, number: int, what: str) -> Crash | None:
        return self._crash if number == self._number else None


def _raise_if_broken(name: str, plain: Conducted) -> None:
    if plain.violations:
        raise CrashesDiffer(name, 0, [("without any crash", plain.violations)])
