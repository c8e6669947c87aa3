"""An order that outlasts its process: really killed in the middle, restarted, and finished.

`./dev run` starts this. A worker process takes an order through a payment that fails once, packs
its parcels side by side, sleeps, and waits for a person's word. While it packs, it is killed with
SIGKILL. A second worker opens the same SQLite file and goes on. Every step notes in a ledger beside
the store that it ran, so the end can show that nothing that was recorded ran again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import outlast
from outlast.model import Event

RUN = "order-42"


@dataclass
class Order:
    id: str
    parcels: list[str]
    amount: int


@dataclass
class Receipt:
    order: str
    amount: int


def note(line: str) -> int:
    """Write a line to the ledger, durably, and say how often it stands there now."""
    ledger = Path(os.environ["LEDGER"])
    with ledger.open("a") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())
    return ledger.read_text().splitlines().count(line)


@outlast.step
async def reserve(order: Order) -> str:
    note("reserve")
    return f"shelf 7, {len(order.parcels)} parcels"


@outlast.step(retry=outlast.Retry(attempts=5, delay=0.1))
async def charge(order: Order) -> Receipt:
    if note("charge") == 1:
        raise ConnectionError("the bank did not answer")
    return Receipt(order.id, order.amount)


@outlast.step
async def pack(parcel: str) -> str:
    times = note(f"pack {parcel}")
    if parcel == "lamp" and times == 1:
        print("packing the lamp", flush=True)
        await asyncio.Event().wait()  # the first worker never gets any further
    return f"{parcel} packed"


@outlast.step
def ship(order: Order) -> str:
    note("ship")
    return f"parcel service has {order.id}"


@outlast.workflow
async def checkout(order: Order) -> Receipt:
    await reserve(order)
    receipt: Receipt = await charge(order)
    await outlast.map(pack, order.parcels, concurrency=2)
    await outlast.sleep(0.5)
    approved: bool = await outlast.wait_for_signal("approve", bool)
    if outlast.branch("approved", approved):
        await ship(order)
    return receipt


async def work(store: str) -> None:
    """What a worker process does: open the app, and go on with whatever is unfinished."""
    async with outlast.App(store, workflows=[checkout]) as app:
        order = Order(RUN, ["book", "lamp", "tea"], 4_200)
        run = await app.start(checkout(order), id=RUN)
        receipt = await run.result()
        print(f"done: {receipt}", flush=True)


def worker(store: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "work", store]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def show(store: str) -> None:
    folder = Path(store.removeprefix("sqlite:///")).parent
    os.environ["LEDGER"] = str(folder / "ledger.txt")

    print("1. A worker takes the order and is killed with SIGKILL while it packs.")
    first = worker(store)
    assert first.stdout is not None
    first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    print(f"   killed: exit code {first.wait()}, {len(ledger())} step bodies had run\n")

    print("2. Somebody approves while no worker is alive. The signal is kept.")
    async with outlast.App(store) as app:
        await app.get(RUN).signal("approve", True)
        before = await app.get(RUN).history()
    print(f"   {len(before)} events were recorded before the crash\n")

    print("3. A second worker opens the same file and goes on where the first one was.")
    second = worker(store)
    assert second.stdout is not None
    print(f"   {second.stdout.readline().strip()}\n")
    second.wait()

    async with outlast.App(store) as app:
        history = await app.get(RUN).history()
    timeline(history, len(before))
    proof(history, len(before))


def ledger() -> list[str]:
    return Path(os.environ["LEDGER"]).read_text().splitlines()


def timeline(history: list[Event], before: int) -> None:
    print("The run's history:")
    began = history[0].timestamp
    for event in history:
        if event.sequence == before + 1:
            print("   ─── killed here; everything above was durable ───")
        elapsed = (event.timestamp - began).total_seconds()
        print(f"   {event.sequence:3}  {elapsed:7.3f} s  {event.type:20} {event.step_name}")


def proof(history: list[Event], before: int) -> None:
    recorded = {e.step_name for e in history[:before] if e.type == "step.completed"}
    ran = Counter(ledger())
    print("\nHow often each step's body ran:")
    for name, times in ran.items():
        why = ""
        if name in recorded:
            why = "recorded before the crash, so not again"
        if name == "charge":
            why += "; the first attempt failed and was retried"
        if times > 1 and name.startswith("pack"):
            why = "it was running when the process died, so it ran again"
        print(f"   {name:12} {times}  {why}")
    repeated = [name for name in recorded if ran[name] > (2 if name == "charge" else 1)]
    assert not repeated, f"recorded steps ran again: {repeated}"
    print("\nNo recorded step ran twice.")
    print("Try next: examples/, docs/tutorial, or kill it yourself somewhere else.")


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(show(f"sqlite:///{folder}/shop.db"))


if __name__ == "__main__":
    main()
