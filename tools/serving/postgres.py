"""PostgreSQL, fully durable, and PgBouncer in front of it."""

from __future__ import annotations

import os
import pwd
import select
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tools.serving.system import Process, ServerMissing, free_port, listens, program

BINARIES = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "log_min_messages": "fatal",
    # As in production: nothing that would let a commit be lost.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
}


class Cluster:
    """A server of our own with one database, in a folder of its own. It may be ended in any way, and
    goes on with what it has left when it is started again."""

    def __init__(self, folder: Path, binaries: Path | None = None) -> None:
        self._user, self.port = _unprivileged(), free_port()
        if binaries is None:
            binaries = Path(os.path.realpath(program("initdb", "postgresql", *BINARIES))).parent
        self._binaries = binaries
        self._data = _folder(folder / "postgres", self._user)
        self._log = _folder(folder / "postgres-log", self._user)
        self._address = ("-h", "127.0.0.1", "-p", str(self.port))
        options = ("-U", "outlast", "-A", "trust", "-E", "UTF8")
        _call([self._program("initdb"), "-D", str(self._data), *options], self._user)
        self._server = self.start()
        psql = [self._program("psql"), "-q", *self._address, "-U", "outlast", "-d", "postgres"]
        _call([*psql, "-c", "CREATE DATABASE outlast"], self._user)

    @property
    def url(self) -> str:
        """The database, as its owner."""
        return f"postgresql://outlast@127.0.0.1:{self.port}/outlast"

    def start(self) -> Process:
        """Start the server, and wait until it answers."""
        self._server = Process(
            [
                *(self._program("postgres"), "-D", str(self._data), "-k", str(self._data)),
                *self._address,
                *(f"-c{name}={value}" for name, value in SETTINGS.items()),
            ],
            self._log,
            name="postgres",
            user=self._user,
            stop_by=signal.SIGINT,  # without waiting for connections that tests have left open
        )
        probe = [self._program("pg_isready"), "-q", *self._address]
        self._server.wait_until(lambda: subprocess.run(probe, check=False).returncode == 0)
        return self._server

    def stop(self) -> None:
        """End it in good order."""
        self._server.stop()

    def stop_at_once(self) -> None:
        """Immediate shutdown: no checkpoint, all connections cut."""
        self._server.end(signal.SIGQUIT)

    def kill(self) -> None:
        """`kill -9` of all its processes: as the machine would leave them."""
        os.kill(self._server.pid, signal.SIGSTOP)  # so that it has no new ones meanwhile
        ends = []
        for child in self._children():
            with suppress(ProcessLookupError):
                ends.append(os.pidfd_open(child))
        self._server.kill()
        for end in ends:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(end, signal.SIGKILL)
            select.select([end], [], [])
            os.close(end)

    def kill_one(self) -> None:
        """`kill -9` of one of its workers: the server cuts all connections and recovers by itself."""
        for child in self._children():
            if b"outlast" in _command_line(child):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                return

    def _children(self) -> list[int]:
        listed = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children").read_text()
        return [int(one) for one in listed.split()]

    def _program(self, name: str) -> str:
        return str(self._binaries / name)


def start_postgres(folder: Path, binaries: Path | None = None) -> dict[str, str]:
    """A server, and a bouncer in front of it."""
    cluster = Cluster(folder, binaries)
    bouncer = _start_bouncer(folder, cluster.port, _unprivileged())
    return {
        "OUTLAST_TEST_POSTGRES": cluster.url,
        "OUTLAST_TEST_PGBOUNCER": f"postgresql://outlast@127.0.0.1:{bouncer}/outlast",
    }


def _start_bouncer(folder: Path, server: int, user: int | None) -> int:
    place, port = _folder(folder / "pgbouncer", user), free_port()
    (place / "users.txt").write_text('"outlast" ""\n')
    (place / "pgbouncer.ini").write_text(
        "[databases]\n"
        f"outlast = host=127.0.0.1 port={server} dbname=outlast user=outlast\n"
        "[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = any\nauth_file = {place}/users.txt\n"
        "pool_mode = transaction\ndefault_pool_size = 10\nmax_client_conn = 200\n"
    )
    command = [program("pgbouncer", "pgbouncer"), str(place / "pgbouncer.ini")]
    bouncer = Process(command, place, name="pgbouncer", user=user)
    bouncer.wait_until(lambda: listens(port))
    return port


def _call(command: Sequence[str], user: int | None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, user=user, cwd="/", check=False)
    if done.returncode != 0:
        raise ServerMissing(f"{Path(command[0]).name} failed:\n{done.stdout}{done.stderr}")


def _unprivileged() -> int | None:
    """The user to run as: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise ServerMissing("PostgreSQL does not run as root, and there is no user postgres or nobody")


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def _folder(path: Path, user: int | None) -> Path:
    path.mkdir()
    path.chmod(0o700)
    if user is not None:
        shutil.chown(path, user)
    return path
