"""A proxy cuts the connection at every single byte of a commit's request, and of its answer.

Before each cut a new connection is made and a commit goes through undisturbed, so that what is cut is
the same exchange each time. Whatever got through: the caller hears that the outcome is unknown, or that
nothing happened and nothing has; asked by its id the commit has happened whole or not at all; sent again
it has happened once.

    ./dev prove postgres_cuts
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import msgspec

from outlast.stores.postgres import PostgresStore
from tests.stores.postgres.cutting import cut_commits
from tests.unit.testkit.faults.proxy import Proxy
from tools.serving.postgres import Cluster


def main(argv: list[str]) -> int:
    """Run the campaign; an error if a promise was broken."""
    parser = argparse.ArgumentParser(prog="./dev prove postgres_cuts")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    figures: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its folder
        cluster = Cluster(Path(folder))
        try:
            for name, upstream in (("request", True), ("answer", False)):
                begun = time.monotonic()
                found = asyncio.run(_cut(cluster.url, name, upstream=upstream))
                shown = ", ".join(f"{count:,} {what}" for what, count in found.items())
                print(f"{name}: {shown}, {time.monotonic() - begun:.0f} s", flush=True)
                figures.update({f"{name}: {what}": count for what, count in found.items()})
        finally:
            cluster.stop()
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode({"postgres_cuts": figures}))
    return 0


async def _cut(url: str, name: str, *, upstream: bool) -> dict[str, int]:
    proxy = Proxy(url)
    try:
        async with PostgresStore(url, schema=name, notify=False) as store:
            found = await cut_commits(store, proxy, upstream=upstream, places=range)
    finally:
        await proxy.stop()
    figures = {"cuts": found.total()}
    for (told, happened), count in sorted(found.items()):
        figures[f"told {told!r}, {'and it had' if happened else 'and it had not'} happened"] = count
    return figures
