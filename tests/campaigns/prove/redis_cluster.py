"""A Redis cluster under load: a primary is killed, time and again; slots move between nodes.

Workflows of every kind run in one process (`tests.campaigns.engine_kills.workflows`) on a cluster of three
primaries with a replica each, in three campaigns:

slots      each of the store's slots is moved to another primary, a few keys at a time, many times.
           Nothing may be lost or doubled.
failover   a primary is killed, its replica takes over, and it comes back as a replica.
late       the same with a replica that was cut off from its primary for a moment before: what was
           acknowledged meanwhile is lost. That is the loss window that is stated. A run that was
           rolled back must be quarantined, not continued; all others must be as if nothing had been.

    ./dev prove redis_cluster [--moves 160] [--failovers 10] [--late 10] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
from redis.crc import key_slot

from outlast.model.ids import root_of
from outlast.stores.redis.keys import Layout
from outlast.stores.redis.store import PARTITIONS
from tests.campaigns.engine_kills.killing import Evidence
from tests.campaigns.engine_kills.verdict import judge
from tests.campaigns.engine_kills.workflows import SIGNALS
from tests.campaigns.prove._redis_life import Load, figures_of, is_quarantined, open_runs
from tests.stores.redis.nodes import Nodes
from tools.serving.redis import Cluster

KEPT = Path(__file__).parents[3] / ".cache" / "prove" / "redis_cluster"
LATE = 0.4
FAST = ("--cluster-node-timeout", "1500")


def main(argv: list[str]) -> int:
    """Run the campaigns; 1 if a promise was broken, or the late ones lost nothing."""
    parser = argparse.ArgumentParser(prog="./dev prove redis_cluster")
    parser.add_argument("--moves", type=int, default=160)
    parser.add_argument("--failovers", type=int, default=10)
    parser.add_argument("--late", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    found, broken = {}, 0
    for name, count in (
        ("slots", options.moves),
        ("failover", options.failovers),
        ("late", options.late),
    ):
        if not count:
            continue
        begun = time.monotonic()
        figures, problems = _campaign(name, count, options.seed)
        shown = ", ".join(f"{number:,} {what}" for what, number in figures.items())
        print(f"{name}: {shown}, {time.monotonic() - begun:.0f} s", flush=True)
        for problem in problems[:20]:
            print(f"  {problem}")
        found[f"redis_cluster {name}"] = figures
        broken += len(problems)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(found))
    return int(broken > 0)


def _campaign(name: str, count: int, seed: int) -> tuple[dict[str, int], list[str]]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        cluster = Cluster(folder, *FAST)
        load = Load(cluster.url, folder)
        try:
            nodes, chance = Nodes(cluster.ports), random.Random(seed)
            if name == "slots":
                did = _move_slots(nodes, load, count, chance)
            else:
                did = _fail_over(cluster, load, count, chance, late=name == "late")
            evidence = load.finish()
        finally:
            load.kill()
            for node in cluster.nodes.values():
                node.stop()
        lost = Counter[str]()
        if name != "slots":
            evidence, lost = without_lost(evidence)
        broken = judge(evidence)
        if name == "late" and not lost["quarantined"]:
            broken.append("nothing was rolled back, so this says nothing about it")
        if broken:
            shutil.copytree(folder, KEPT / f"{name}-{seed}", dirs_exist_ok=True)
            print(f"ledgers and the nodes' files are kept in {KEPT / f'{name}-{seed}'}")
    figures = {**did, **figures_of(evidence), **lost, "broken promises": len(broken)}
    return figures, broken


def _move_slots(nodes: Nodes, load: Load, count: int, chance: random.Random) -> dict[str, int]:
    layout = Layout("outlast", PARTITIONS, tagged=True)
    slots = [key_slot(prefix) for prefix in layout.prefixes]
    before = nodes.redirections()
    keys = 0
    for number in range(count):
        load.watch(chance.uniform(0.0, 0.3))
        keys += nodes.move(slots[number % len(slots)], chance)
    return {"slots moved": count, "keys moved": keys, **(nodes.redirections() - before)}


def _fail_over(
    cluster: Cluster, load: Load, count: int, chance: random.Random, *, late: bool
) -> dict[str, int]:
    nodes = Nodes(cluster.ports)
    for _ in range(count):
        load.watch(chance.uniform(0.5, 1.5))
        primary = chance.choice(nodes.primaries())
        replica = nodes.replica_of(primary)
        if late:
            with nodes.cut_off(primary, replica):
                load.watch(LATE)
                cluster.nodes[primary.port].kill()
        else:
            cluster.nodes[primary.port].kill()
        nodes.wait_for(replica)
        load.watch(chance.uniform(0.5, 1.5))
        cluster.restart(primary.port)
        cluster.wait_until_whole()
        nodes.wait_until_following(primary.port)
    return {"failovers": count}


def without_lost(evidence: Evidence) -> tuple[Evidence, Counter[str]]:
    """What is left to judge when that is taken away which a failover may lose, and how much of it
    there was: runs that were rolled back and quarantined, runs of which the start is gone, and runs
    that wait for a signal which is gone."""
    runs = evidence.final.runs
    why: dict[str, str] = {}
    sent = Counter(one.run_id for one in evidence.told if one.what in ("sent", "refused"))
    for line in evidence.told:
        if line.what == "started" and line.run_id not in runs:
            why[line.run_id] = "starts gone"
    for id in open_runs(evidence):
        if id.startswith("listens") and sent[id] == SIGNALS and not runs[id].inbox:
            why[id] = "signals gone"
    for id, dumped in runs.items():
        if is_quarantined(dumped.run.error):
            why[root_of(id)] = "quarantined"
    final = msgspec.structs.replace(
        evidence.final,
        runs={id: dumped for id, dumped in runs.items() if root_of(id) not in why},
        listed={
            status: [id for id in ids if root_of(id) not in why]
            for status, ids in evidence.final.listed.items()
        },
        timers=[one for one in evidence.final.timers if root_of(one.run_id) not in why],
        snapshots=[id for id in evidence.final.snapshots if root_of(id) not in why],
    )
    told = [one for one in evidence.told if root_of(one.run_id) not in why]
    effects = [one for one in evidence.effects if root_of(one.run_id) not in why]
    return Evidence(told, effects, final, evidence.integrity), Counter(why.values())
