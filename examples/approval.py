"""Expenses that wait for people: a manager's word, and a director's when the manager says nothing.

Small amounts are paid at once. For others the run waits for the signal `decision`; when it does not
come in time, the run is *halted* and shows what it is about, until somebody resumes it with an
answer. While it waits it is in nobody's memory: the process may end, and days may pass.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from datetime import timedelta

import outlast
from outlast.errors import SignalTimeout

PETTY_CASH = 50
PATIENCE = timedelta(days=3)
WHEN_URGENT = timedelta(seconds=0.5)  # in real life: hours


@dataclass
class Expense:
    who: str
    what: str
    euros: int
    urgent: bool = False


@dataclass
class Decision:
    approved: bool
    by: str


@outlast.step
async def ask_manager(expense: Expense) -> None:
    print(f"   mail to the manager: may {expense.who} have {expense.euros} € for {expense.what}?")


@outlast.step
async def pay(expense: Expense) -> str:
    print(f"   the bank pays {expense.euros} € to {expense.who}")
    return f"paid {expense.euros} €"


@outlast.workflow
async def reimburse(expense: Expense) -> str:
    if expense.euros <= PETTY_CASH:
        return await pay(expense)
    await ask_manager(expense)
    patience = WHEN_URGENT if expense.urgent else PATIENCE
    try:
        decision = await outlast.wait_for_signal("decision", Decision, timeout=patience)
    except SignalTimeout:
        decision = await outlast.halt(expense, Decision)
    if not decision.approved:
        return f"refused by {decision.by}"
    return f"{await pay(expense)}, approved by {decision.by}"


async def main(store: str) -> None:
    async with outlast.App(store, workflows=[reimburse]) as app:
        print("Four expenses come in:")
        expenses = {
            "coffee": Expense("Ada", "coffee", 12),
            "train": Expense("Ben", "a train ticket", 130, urgent=True),
            "desk": Expense("Cleo", "a desk", 400),
            "yacht": Expense("Dan", "a yacht", 90_000),
        }
        runs = {id: await app.start(reimburse(it), id=id) for id, it in expenses.items()}
        await see(app, "waiting", "desk", "yacht")

        print("The manager answers two of them, and goes on holiday:")
        await runs["desk"].signal("decision", Decision(True, "the manager"))
        await runs["yacht"].signal("decision", Decision(False, "the manager"))
        await runs["desk"].result()

        print("The director looks at what is halted:")
        await see(app, "halted", "train")
        async for run in app.client.find(status="halted"):
            print(f"   {run.id!r} needs a decision: {run.halt_data}")
            await app.get(run.id).resume(Decision(True, "the director"))

        results = {id: await run.result() for id, run in runs.items()}
        print("In the end:")
        for id, result in results.items():
            print(f"   {id:7} {result}")


async def see(app: outlast.App, status: str, *ids: str) -> None:
    """Look at the list of runs, as a person would, until these are on it."""
    while True:
        found = {run.id async for run in app.client.find(status=status)}
        if found.issuperset(ids):
            return
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if sys.argv[1:] else f"sqlite:///{folder}/expenses.db"))
