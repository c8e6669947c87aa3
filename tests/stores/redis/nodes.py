"""What is done to a cluster: a replica is cut off and takes over; slots move between nodes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from tests.stores.sqlite_processes.crew import pause_for

BATCH = 20
MAX_SCANS = 600
PAUSE = 0.1
REDIRECTIONS = ("MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN")


class Node(NamedTuple):
    """A node as another one sees it."""

    id: str
    port: int
    primary: str  # the id of its primary, "-" if it is one
    slots: frozenset[int]


class Nodes:
    """A cluster, and somebody with all rights on it."""

    def __init__(self, ports: Iterable[int]) -> None:
        self.ports = list(ports)
        self._clients: dict[int, Any] = {port: Redis(port=port) for port in self.ports}

    @classmethod
    def around(cls, port: int) -> Nodes:
        """All nodes of the cluster that one of them is in."""
        one = cls([port])
        try:
            return cls(node.port for node in one.seen_by(port))
        finally:
            one.close()

    def close(self) -> None:
        """Give the connections back."""
        for client in self._clients.values():
            client.close()

    def ask(self, port: int, *command: object) -> Any:
        """The answer of one node."""
        return self._clients[port].execute_command(*command)

    def seen_by(self, port: int) -> list[Node]:
        """All nodes that are alive, as one of them sees it."""
        found: list[Node] = []
        for place, facts in self.ask(port, "CLUSTER NODES").items():
            flags = facts["flags"].split(",")
            if "fail" in flags or not facts["connected"]:
                continue
            slots: set[int] = set()
            for first, *last in facts["slots"]:
                slots |= set(range(int(first), int((last or [first])[0]) + 1))
            own = int(place.partition("@")[0].rpartition(":")[2])
            found.append(Node(facts["node_id"], own, facts["master_id"], frozenset(slots)))
        return found

    def primaries(self) -> list[Node]:
        """Those that have slots."""
        return [node for node in self.seen_by(self.ports[0]) if node.primary == "-"]

    def redirections(self) -> Counter[str]:
        """How often nodes said that something is not here, since they were started."""
        total = Counter[str]()
        for port in self.ports:
            for name, facts in self.ask(port, "INFO", "errorstats").items():
                word = name.removeprefix("errorstat_")
                if word in REDIRECTIONS:
                    total[word] += facts["count"]
        return total

    # -- failover -----------------------------------------------------------------------------

    def replica_of(self, node: Node) -> Node:
        """The replica that will take over."""
        others = self.seen_by(node.port)
        return next(one for one in others if one.primary == node.id)

    @contextmanager
    def cut_off(self, primary: Node, replica: Node) -> Iterator[None]:
        """The replica hears nothing of its primary: what is acknowledged now will be lost."""
        # A password that the primary does not know keeps it from coming back.
        self.ask(replica.port, "CONFIG", "SET", "masterauth", "wrong")
        self.ask(primary.port, "CLIENT", "KILL", "TYPE", "replica")
        try:
            yield
        finally:
            self.ask(replica.port, "CONFIG", "SET", "masterauth", "")

    def wait_for(self, replica: Node) -> None:
        """Return when the replica has taken over."""
        for _ in range(MAX_SCANS):
            if self._is_primary(replica.port):
                return
            pause_for(PAUSE)
        raise AssertionError("nobody took over")

    def _is_primary(self, port: int) -> bool:
        state = self.ask(port, "CLUSTER INFO")
        role, is_ok = self.ask(port, "ROLE")[0], state["cluster_state"] == "ok"
        return bool(role == b"master" and is_ok)

    def wait_until_following(self, port: int) -> None:
        """Return when a node that came back has all that its primary has."""
        for _ in range(MAX_SCANS):
            try:
                if self.ask(port, "INFO", "replication").get("master_link_status") == "up":
                    return
            except RedisError:
                pass  # it is loading, or our connection was to the one that died
            pause_for(PAUSE)
        raise AssertionError("the node that was killed does not come back")

    # -- slots --------------------------------------------------------------------------------

    def move(self, slot: int, chance: random.Random) -> int:
        """Move a slot to another primary, a few keys at a time; how many keys that were."""
        source, target = self.begin_move(slot, chance)
        moved = 0
        while keys := self.ask(source.port, "CLUSTER", "GETKEYSINSLOT", slot, BATCH):
            self.ask(source.port, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            moved += len(keys)
        self.end_move(slot, source, target)
        return moved

    def begin_move(self, slot: int, chance: random.Random) -> tuple[Node, Node]:
        """From now on the source of a slot says ASK for what it does not have."""
        nodes = self.primaries()
        [source] = [node for node in nodes if slot in node.slots]
        target = chance.choice([node for node in nodes if node is not source])
        self.ask(target.port, "CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        self.ask(source.port, "CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        return source, target

    def end_move(self, slot: int, source: Node, target: Node) -> None:
        """The slot is the target's."""
        for node in (target, source, *self.primaries()):
            self.ask(node.port, "CLUSTER", "SETSLOT", slot, "NODE", target.id)
