"""Redis, every write synced before it is answered: one server, and a cluster of three primaries with a
replica each."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from tools.serving.system import Process, ServerMissing, free_port, listens, program

DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
PRIMARIES = 3
REPLICAS = 3
CLUSTER = (
    *("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"),
    *("--cluster-node-timeout", "5000", "--repl-diskless-sync-delay", "0"),
)
MEMORY = Path("/dev/shm")


def _start(folder: Path, port: int, *options: str) -> Process:
    folder.mkdir(exist_ok=True)
    server = Process(
        [
            *(_binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
            *("--daemonize", "no", "--protected-mode", "no", *DURABLE, *options),
        ],
        folder,
        name="redis",
    )
    server.wait_until(lambda: listens(port) and _ask(port, "PING") == "PONG")
    return server


def _binary() -> str:
    """Debian's Redis, or what OUTLAST_REDIS_SERVER names: another version, or Valkey."""
    return os.environ.get("OUTLAST_REDIS_SERVER") or program("redis-server", "redis-server")


def _ask(port: int, *command: str) -> str:
    client = program("redis-cli", "redis-tools")
    asked = [client, "-p", str(port), *command]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def _place(folder: Path) -> Path:
    """Where the data go: into memory if that can be had. The servers do all that they do on a disk,
    and the tests do not wait for it; what a power loss leaves is shown by `./dev prove`."""
    if not os.access(MEMORY, os.W_OK):
        return folder
    place = Path(tempfile.mkdtemp(prefix="outlast-redis-", dir=MEMORY))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def start_own(folder: Path, port: int = 0, *options: str) -> tuple[str, Process]:
    """A server for a test that mistreats it: its URL, and the process to be stopped. With the port of
    one that was stopped, or killed, it goes on with what that one has left."""
    port = port or free_port()
    return f"redis://127.0.0.1:{port}/0", _start(folder / f"redis-{port}", port, *options)


def start_with_tls(folder: Path, certificate: Path, key: Path) -> tuple[str, Process]:
    """A server that speaks TLS: its URL, and the process to be stopped."""
    port, plain = free_port(), free_port()
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    options = ("--tls-port", str(port), *files, "--tls-auth-clients", "no")
    return f"rediss://127.0.0.1:{port}/0", _start(folder / "redis-tls", plain, *options)


class Watched:
    """A primary, its replica, and a sentinel that makes the one the other."""

    NAME = "ours"

    def __init__(self, folder: Path) -> None:
        first, second, self._port = free_port(), free_port(), free_port()
        sync = ("--repl-diskless-sync-delay", "0")
        self._first = first
        self._processes = [
            _start(folder / "first", first, *sync),
            _start(folder / "second", second, *sync, "--replicaof", "127.0.0.1", str(first)),
        ]
        place = folder / "sentinel"
        place.mkdir()
        settings = place / "sentinel.conf"
        settings.write_text(
            f"sentinel monitor {self.NAME} 127.0.0.1 {first} 1\n"
            f"sentinel down-after-milliseconds {self.NAME} 500\n"
        )
        command = [_binary(), str(settings), "--sentinel", "--port", str(self._port)]
        self._processes.append(Process(command, place, name="sentinel"))
        self._processes[-1].wait_until(self._knows_both)

    @property
    def url(self) -> str:
        """Where the sentinel is."""
        return f"redis+sentinel://127.0.0.1:{self._port}/{self.NAME}"

    def primary(self) -> str:
        """Where it says that the primary is."""
        return _ask(self._port, "SENTINEL", "get-master-addr-by-name", self.NAME)

    def kill_primary(self) -> None:
        """Kill the first one when its replica has all that it has, and return when that is the primary.
        (One that is only told to hand over goes on taking writes for seconds, and forgets them.)"""
        before = self.primary()
        self._processes[-1].wait_until(self._is_replicated)
        self._processes[0].kill()
        self._processes[-1].wait_until(lambda: self.primary() not in ("", before))

    def stop(self) -> None:
        """End all three."""
        for process in reversed(self._processes):
            process.stop()

    def _is_replicated(self) -> bool:
        told = dict(
            line.split(":", 1)
            for line in _ask(self._first, "INFO", "replication").splitlines()
            if ":" in line
        )
        return f"offset={told['master_repl_offset']}," in told.get("slave0", "")

    def _knows_both(self) -> bool:
        told = _ask(self._port, "SENTINEL", "replicas", self.NAME)
        return "master-link-status\nok" in told


def start_redis(folder: Path) -> dict[str, str]:
    """One server."""
    port = free_port()
    _start(_place(folder) / "redis", port)
    return {"OUTLAST_TEST_REDIS": f"redis://127.0.0.1:{port}/0"}


class Cluster:
    """Three primaries that share the slots, and a replica of each. A node that was killed can be
    started again; it goes on with what it has left."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.ports = [_port_with_bus() for _ in range(PRIMARIES + REPLICAS)]
        self._folder, self._options = folder, (*CLUSTER, *options)
        self.nodes = {port: self._begun(port) for port in self.ports}
        names = [f"127.0.0.1:{port}" for port in self.ports]
        _ask(
            self.ports[0], "--cluster", "create", *names, "--cluster-replicas", "1", "--cluster-yes"
        )
        self.wait_until_whole()

    @property
    def url(self) -> str:
        """Where it is, by all of its nodes."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def wait_until_whole(self) -> None:
        """Return when every node sees all others, and all slots are served."""
        for port, node in self.nodes.items():
            node.wait_until(partial(_is_whole, port))

    def restart(self, port: int) -> None:
        """Start a node again."""
        self.nodes[port] = self._begun(port)

    def _begun(self, port: int) -> Process:
        return _start(self._folder / f"redis-{port}", port, *self._options)


def start_redis_cluster(folder: Path) -> dict[str, str]:
    """Three primaries that share the slots, and a replica of each."""
    port = Cluster(_place(folder)).ports[0]
    return {"OUTLAST_TEST_REDIS_CLUSTER": f"redis+cluster://127.0.0.1:{port}"}


def _is_whole(port: int) -> bool:
    info = _ask(port, "CLUSTER", "INFO")
    replicas = _ask(port, "CLUSTER", "NODES").count(" connected")
    return "cluster_state:ok" in info and replicas == PRIMARIES + REPLICAS


def _port_with_bus() -> int:
    """A free port whose neighbour for the cluster's own bus, ten thousand above, is free too."""
    for _ in range(100):
        port = free_port()
        if port < 55_000 and not listens(port + 10_000):
            return port
    raise ServerMissing("no free port below 55,000 for a node of the Redis cluster")
