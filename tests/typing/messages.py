"""Declared messages, as mypy and pyright see them: the comments say what they have to reject."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

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
names = outlast.Signal("names", list[str])
maybe = outlast.Query("maybe", int | None)
rename = outlast.Update("rename", str, str | None)
note = outlast.Update("note", dict[str, int])
wrong_type = outlast.Signal("wrong", 5)  # type: ignore[call-overload]


@outlast.workflow
async def order() -> str:
    approval: Approval = await approve.wait(timeout=60)
    text: str = await approve.wait()  # type: ignore[assignment]
    await go.wait()
    listed: list[str] = await names.wait()
    pairs: dict[str, int] = await names.wait()  # type: ignore[assignment]
    same: list[str] = await outlast.wait_for_signal(names)
    other: list[int] = await outlast.wait_for_signal(names)  # type: ignore[arg-type]
    await outlast.wait_for_signal(names, int)  # type: ignore[call-overload]
    print(listed, pairs, same, other)

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
    await run.signal(approve)  # type: ignore[arg-type]
    await run.signal(names, ["a"])
    await run.signal(names, [1])  # type: ignore[misc]
    await run.signal(names, ["a"], colour="red")  # type: ignore[call-overload]
    unknown: int | None = await run.query(maybe)
    certain: int = await run.query(maybe)  # type: ignore[arg-type]
    listed: list[int] = await run.query("listed", list[int])
    wrong: list[str] = await run.query("listed", list[int])  # type: ignore[arg-type]
    await run.query("listed", 5)  # type: ignore[call-overload]
    await run.query(maybe, int)  # type: ignore[call-overload]
    old: str | None = await run.update(rename, "b")
    new: str = await run.update(rename, "b")  # type: ignore[arg-type]
    amount: int = await run.update("add", 1, int)
    text: str = await run.update("add", 1, int)  # type: ignore[arg-type]
    await run.update(rename)  # type: ignore[call-overload]
    anything: int = await run.update(note, {"a": 1})
    print(unknown, certain, listed, wrong, old, new, amount, text, anything)


def sends_blocking(run: sync.RunHandle[str]) -> None:
    run.signal(approve, Approval("ann"))
    taken: bool = run.update(price, Decimal(1))
    done: int = run.query(progress)
    half: str = run.query(progress)  # type: ignore[assignment]
    run.signal(approve, "yes")  # type: ignore[misc]
    run.update(price, "much")  # type: ignore[misc]
    listed: list[int] = run.query("listed", list[int])
    text: str = run.update("add", 1, int)  # type: ignore[assignment]
    print(taken, done, half, listed, text)


@sync.workflow
def waits_plainly() -> str:
    approval: Approval = sync.wait_for_signal(approve)
    text: str = sync.wait_for_signal(approve)  # type: ignore[assignment]
    paid: int = sync.wait_for_signal("paid", int)
    answer: bool = sync.halt({"amount": paid}, bool)
    return f"{approval.by} {text} {paid} {answer}"
