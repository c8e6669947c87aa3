"""Declared messages, as mypy and pyright see them: the comments say what they have to reject."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import outlast
from outlast import sync


@dataclass
class Approval:
    by: str


approve = outlast.Signal("approve", Approval)
go = outlast.Signal("go")
price = outlast.Update("price", Decimal, bool)
progress = outlast.Query("progress", int)


@outlast.workflow
async def order() -> str:
    approval: Approval = await approve.wait(timeout=60)
    text: str = await approve.wait()  # type: ignore[assignment]
    await go.wait()

    @price.on
    def change(new: Decimal) -> bool:
        return new > 1

    @price.on  # type: ignore[arg-type]
    def wrong(new: str) -> bool:
        return new > "1"

    progress.publish(1)
    progress.publish("half")  # type: ignore[arg-type]
    return f"{approval.by} {text} {change} {wrong}"


async def sends(run: outlast.RunHandle[str]) -> None:
    await run.signal(approve, Approval("ann"))
    await run.signal(approve, "yes")  # type: ignore[misc]
    await run.signal(go)
    await run.signal("approve", {"by": "ann"})
    taken: bool = await run.update(price, Decimal(1))
    await run.update(price, "much")  # type: ignore[misc]
    word: str = await run.update(price, Decimal(1))  # type: ignore[arg-type]
    done: int = await run.query(progress)
    half: str = await run.query(progress)  # type: ignore[arg-type]
    print(taken, word, done, half, await run.query("progress", int))


def sends_blocking(run: sync.RunHandle[str]) -> None:
    run.signal(approve, Approval("ann"))
    taken: bool = run.update(price, Decimal(1))
    done: int = run.query(progress)
    print(taken, done)
