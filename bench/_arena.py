"""What all benchmarks share: arguments, the machine's load, servers, rounds that alternate, results.

    def main(argv):
        return compete(__name__, argv, {"sqlite": on_sqlite, "redis": on_redis}, rounds=3,
                       sizes={"jobs": Size(5_000, full=10_000, help="jobs to add and do")})

A *part* is a function that gets the arena and returns contests. One that fails is told, with its
reason in the results, and the next one goes on: a benchmark of half an hour is not lost for it. Results
are kept by part (bench/_results.py).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from redis import Redis

from bench._databases import Databases
from bench._machine import describe, load
from bench._peers import CACHE, PeerMissing, install
from bench._results import Results
from bench._table import Contest, in_words
from bench.peers._clock import made_ready
from tools.serving.postgres import Cluster
from tools.serving.redis import start_own

T = TypeVar("T")


class Size(NamedTuple):
    """How much of something, as a rule and with `--full`."""

    default: int
    full: int
    help: str


class Arena:
    """Where one benchmark takes place: a folder on the disk, servers when they are asked for."""

    def __init__(self, folder: Path, options: argparse.Namespace, stack: ExitStack) -> None:
        self.folder = folder
        self.rounds: int = options.rounds
        self.alone: bool = options.alone
        self._options, self._stack = options, stack
        self._begun = time.monotonic()
        self._databases: Databases | None = None
        self._redis = ""
        self._places: list[str] = []

    def size(self, name: str) -> int:
        """How much of something was asked for."""
        asked: int = getattr(self._options, name)
        return asked

    def minutes(self) -> float:
        """Since it began."""
        return (time.monotonic() - self._begun) / 60

    def say(self, what: str) -> None:
        """Tell those who wait what is going on."""
        print(f"[{time.monotonic() - self._begun:5.0f} s] {what}", file=sys.stderr, flush=True)

    def postgres(self) -> Databases:
        """A PostgreSQL of our own, with its durability as it comes."""
        if self._databases is None:
            self.say("starting PostgreSQL")
            self.folder.chmod(0o755)  # it refuses to run as root, and has to reach its own folder
            cluster = Cluster(self.folder)
            self._stack.callback(cluster.stop)
            self._databases = Databases(cluster.url, self.folder)
        return self._databases

    def redis(self) -> str:
        """The URL of a Redis of our own on the disk, with `appendfsync always`."""
        if not self._redis:
            self.say("starting Redis")
            self._redis, server = start_own(self.folder)
            self._stack.callback(server.stop)
        return self._redis

    def place(self, store: str) -> str:
        """The URL of a new and empty store: of SQLite, PostgreSQL, Redis, or memory."""
        name = f"bench{time.time_ns():x}"
        match store:
            case "SQLite":
                place = f"sqlite:///{self.folder / name}.db"
            case "PostgreSQL":
                place = asyncio.run(self.postgres().database())
            case "Redis":
                place = f"{self.redis()}#{name}"
            case _:
                place = "memory:"
        self._places.append(place)
        return place

    def alternate(
        self, contestants: Mapping[str, Callable[[], T]], rounds: int = 0
    ) -> tuple[dict[str, list[T]], dict[str, str]]:
        """What each found, round by round, in turn; and who could not take part, with the reason. Each
        round begins with another one, and what one has left on the disk is removed before the next."""
        found: dict[str, list[T]] = {}
        left_out: dict[str, str] = {}
        rounds, names = rounds or self.rounds, list(contestants)
        further = max(len(names) // rounds, 1)
        for number in range(rounds):
            first = number * further % len(names)
            for name in names[first:] + names[:first]:
                if name in left_out:
                    continue
                self.say(f"round {number + 1} of {rounds}: {name}")
                kept = len(self._places)
                try:
                    found.setdefault(name, []).append(contestants[name]())
                except Exception as error:
                    if name.startswith("outlast"):
                        raise
                    is_told = isinstance(error, PeerMissing)
                    left_out[name] = str(error) if is_told else f"{type(error).__name__}: {error}"
                    self.say(f"{name} cannot take part: {left_out[name]}")
                finally:
                    self._remove(self._places[kept:])
                    del self._places[kept:]
        return {name: values for name, values in found.items() if values}, left_out

    def _remove(self, places: list[str]) -> None:
        for place in places:
            if place.startswith("postgresql:"):
                asyncio.run(self.postgres().remove(place))
            elif place.startswith("redis:"):
                with Redis.from_url(self.redis()) as server:
                    server.flushall()
            elif place.startswith("sqlite:"):
                for file in self.folder.glob(f"{Path(place).stem}.*"):
                    file.unlink()


Part = Callable[[Arena], list[Contest]]


def compete(
    module: str,
    argv: list[str],
    parts: Mapping[str, Part],
    *,
    rounds: int,
    sizes: Mapping[str, Size] | None = None,
    peers: Iterable[str] = (),
) -> int:
    """Measure all parts, or those that are named; print each, write JSON and draw plots if asked. The
    peers that take part are installed first."""
    name, doc = module.rpartition(".")[2], sys.modules[module].__doc__ or ""
    options = parse(name, doc, argv, parts, rounds, sizes or {})
    for peer in peers if not options.alone else ():
        with suppress(PeerMissing):  # told in the rounds
            install(peer)
    results = Results(name, list(parts), options.json, options.plot)
    CACHE.mkdir(parents=True, exist_ok=True)  # not /tmp, which may be memory
    with tempfile.TemporaryDirectory(dir=CACHE) as folder, ExitStack() as stack:
        arena = Arena(Path(folder), options, stack)
        # Servers are stopped however this ends.
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        stack.callback(signal.signal, signal.SIGTERM, before)
        load_after = load()
        for part in options.only or parts:
            arena.say(f"{name}: {part}; load of the machine: {load_after}")
            begun, load_before, failed = time.monotonic(), load_after, ""
            found: list[Contest] = []
            try:
                found = parts[part](arena)
            except Exception as error:  # noqa: BLE001 - told below, and the next part goes on
                traceback.print_exc()
                failed = f"{type(error).__name__}: {error}"
            for contest in found:
                print(in_words(contest), flush=True)
            minutes, load_after = round((time.monotonic() - begun) / 60, 1), load()
            print(
                f"{name} {part}: load {load_before} before, {load_after} after; {minutes} minutes"
            )
            about = {"machine": describe(), "load_before": load_before, "load_after": load_after}
            results.add(part, {**about, "minutes": minutes, "failed": failed}, found)
    print(f"took {arena.minutes():.1f} minutes; a load well above 0 % makes figures worthless")
    return results.tell_failures(options.only or list(parts))


def parse(
    name: str,
    doc: str,
    argv: list[str],
    parts: Mapping[str, Part],
    rounds: int,
    sizes: Mapping[str, Size],
) -> argparse.Namespace:
    """The arguments that all benchmarks understand, and the sizes of this one."""
    parser = argparse.ArgumentParser(
        prog=f"./dev bench {name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=_positive, default=rounds, help=f"as a rule {rounds}")
    parser.add_argument("--only", choices=list(parts), action="append", help="leave the rest out")
    parser.add_argument("--alone", action="store_true", help="outlast without the others")
    parser.add_argument("--full", action="store_true", help="the full sizes, which take long")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--plot", type=Path, help="draw the results (SVG) into this folder")
    for size, (default, full, text) in sizes.items():
        told = f"{text}: {default:,}, with --full {full:,}"
        parser.add_argument(f"--{size.replace('_', '-')}", type=_positive, help=told)
    options = parser.parse_args(argv)
    for size, (default, full, _) in sizes.items():
        if getattr(options, size) is None:
            setattr(options, size, full if options.full else default)
    return options


def _positive(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


async def seconds(act: Callable[[], Awaitable[Any]], times: int = 1) -> float:
    """How long it takes, on average of a few."""
    with made_ready():
        begun = time.perf_counter()
        for _ in range(times):
            await act()
        return (time.perf_counter() - begun) / times
