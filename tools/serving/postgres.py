"""PostgreSQL, fully durable, and PgBouncer in front of it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
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


def start_postgres(folder: Path) -> dict[str, str]:
    """A cluster of its own with one database, and a bouncer in front of it."""
    user, port = _unprivileged(), free_port()
    initdb = Path(os.path.realpath(program("initdb", "postgresql", *BINARIES)))
    data = _folder(folder / "postgres", user)
    _call([str(initdb), "-D", str(data), "-U", "outlast", "-A", "trust", "-E", "UTF8"], user)
    address = ("-h", "127.0.0.1", "-p", str(port))
    server = Process(
        [
            *(str(initdb.with_name("postgres")), "-D", str(data), "-k", str(data), *address),
            *(f"-c{name}={value}" for name, value in SETTINGS.items()),
        ],
        _folder(folder / "postgres-log", user),
        name="postgres",
        user=user,
        stop_by=signal.SIGINT,  # without waiting for connections that tests have left open
    )
    probe = [str(initdb.with_name("pg_isready")), "-q", *address]
    server.wait_until(lambda: subprocess.run(probe, check=False).returncode == 0)
    psql = [str(initdb.with_name("psql")), "-q", *address, "-U", "outlast", "-d", "postgres"]
    _call([*psql, "-c", "CREATE DATABASE outlast"], user)
    bouncer = _start_bouncer(folder, port, user)
    return {
        "OUTLAST_TEST_POSTGRES": f"postgresql://outlast@127.0.0.1:{port}/outlast",
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


def _folder(path: Path, user: int | None) -> Path:
    path.mkdir()
    path.chmod(0o700)
    if user is not None:
        shutil.chown(path, user)
    return path
