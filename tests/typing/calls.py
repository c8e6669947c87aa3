"""What type checkers say of calls: mypy and pyright report an error where a line ignores one, and no other.

Both are set to report an ignore that is not needed, so a wrong argument that they accept fails the check.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from datetime import timedelta

import outlast
from outlast import sync
from outlast.errors import StepFailed


@outlast.workflow
async def order(customer: str, quantity: int = 1) -> float:
    return 1.0


@outlast.workflow
def plain(customer: str) -> int:
    price: float = sync.child(order(customer))
    text: str = sync.child(order(customer))  # type: ignore[assignment]
    sync.child(order(3))  # type: ignore[arg-type]
    return int(price) + len(text)


@outlast.workflow
async def parent() -> float:
    total: float = await order("Momo")
    text: str = await order("Momo")  # type: ignore[assignment]
    await order(1)  # type: ignore[arg-type]
    await order("Momo", "two")  # type: ignore[arg-type]
    await order()  # type: ignore[call-arg]
    await outlast.child(order("Momo"), id="o-1", parent_close="abandon")
    await outlast.child(order("Momo", colour="red"), id="o-1")  # type: ignore[call-arg]
    await outlast.child(order("Momo"), parent_close="maybe")  # type: ignore[arg-type]
    await outlast.child(order, "Momo")  # type: ignore[call-arg, arg-type]
    if total > len(text):
        outlast.continue_as_new(parent(1))  # type: ignore[call-arg]
    return total


async def starts(app: outlast.App, client: outlast.Client) -> None:
    run: outlast.RunHandle[float] = await app.start(order("Momo", quantity=2), id="order-1")
    price: float = await run.result()
    text: str = await (await app.start(order("Momo"))).result()  # type: ignore[assignment]
    await app.start(order(1), id="order-1")  # type: ignore[arg-type]
    await app.start(order("Momo", amount=2))  # type: ignore[call-arg]
    await app.start(order("Momo"), customer="Momo")  # type: ignore[call-overload]
    await app.start(order, "Momo")  # type: ignore[call-overload]
    await app.start(order("Momo"), on_conflict="ignore")  # type: ignore[call-overload]
    await app.start(parent("Momo"))  # type: ignore[call-arg]
    await client.start(order("Momo"), queue="orders", attributes={"tenant": "a"})
    await client.start(order(1))  # type: ignore[arg-type]
    await client.start("order", ["Momo"], {"quantity": 2}, id="order-1")
    await client.start_many([order("Momo"), order("Kim", 2)])
    await client.start_many({"o-1": order("Momo")}, queue="orders")
    await client.start_many([order(1)])  # type: ignore[arg-type]
    await client.debounce(order("Momo"), key="a", quiet=1)
    await client.debounce(order(1), key="a", quiet=1)  # type: ignore[arg-type]
    print(price, text)


def starts_blocking(app: sync.App) -> None:
    price: float = app.start(order("Momo"), id="order-1").result()
    app.start(order(1))  # type: ignore[arg-type]
    app.start(order("Momo"), colour="red")  # type: ignore[call-overload]
    app.start_many([order(1)])  # type: ignore[arg-type]
    app.client.debounce(order("Momo"), key="a", quiet=1)
    app.client.debounce(order(1), key="a", quiet=1)  # type: ignore[arg-type]
    app.client.schedules.create(nightly)
    app.client.schedules.create(order("Momo"))  # type: ignore[arg-type]
    for event in app.get("order-1").events(follow=True):
        number: int = event.sequence
        word: str = event.sequence  # type: ignore[assignment]
        print(number, word)
    print(price)


def starts_from_outside(client: sync.Client) -> None:
    with client, sync.Client("sqlite:///shop.db", workflows=[order]) as other:
        price: float = other.start(order("Momo"), queue="orders").result()
        text: str = client.start(order("Momo")).result()  # type: ignore[assignment]
        other.start(order(1))  # type: ignore[arg-type]
        sync.Client("memory:", colour="red")  # type: ignore[call-arg]
        sync.App("memory:", colour="red")  # type: ignore[call-arg]
    print(price, text)


@outlast.step
async def charge(customer: str) -> int:
    return 1


@sync.step
def weigh(customer: str) -> int:
    return 1


@outlast.workflow
async def maps(names: list[str]) -> None:
    prices: list[int] = await outlast.map(charge, names, concurrency=5)
    outcomes: list[int | StepFailed] = await outlast.map(charge, names, tolerate=2)
    first: list[int | None] = await outlast.map(charge, names, enough=3)
    both: list[int | StepFailed | None] = await outlast.map(charge, names, tolerate=1, enough=3)
    wrong: list[int] = await outlast.map(charge, names, tolerate=2)  # type: ignore[assignment]
    some: list[int] = await outlast.map(charge, names, enough=2)  # type: ignore[assignment]
    await outlast.map(charge, [1, 2])  # type: ignore[arg-type]
    print(prices, outcomes, first, both, wrong, some)


@outlast.workflow
def maps_plainly(names: list[str]) -> None:
    prices: list[int] = sync.map(weigh, names)
    outcomes: list[int | StepFailed] = sync.map(weigh, names, tolerate=2)
    wrong: list[int] = sync.map(weigh, names, tolerate=2)  # type: ignore[assignment]
    sync.map(weigh, names, colour="red")  # type: ignore[call-overload]
    print(prices, outcomes, wrong)


@outlast.workflow
async def waits() -> None:
    paid: int = await outlast.wait_for_signal("paid", int, timeout=timedelta(days=1))
    names: list[str] = await outlast.wait_for_signal("names", list[str])
    text: str = await outlast.wait_for_signal("paid", int)  # type: ignore[arg-type]
    answer: bool = await outlast.halt({"amount": paid}, bool)
    wrong: str = await outlast.halt({"amount": paid}, bool)  # type: ignore[arg-type]
    await outlast.wait_for_signal("paid", int, timeout="1d")  # type: ignore[call-overload]
    maybe: int | None = await outlast.wait_for_signal("maybe", int | None)
    certain: int = await outlast.wait_for_signal("maybe", int | None)  # type: ignore[arg-type]
    await outlast.wait_for_signal("paid", 5)  # type: ignore[call-overload]
    anything: str = await outlast.wait_for_signal("anything")
    print(maybe, certain, anything, outlast.wrokflow)  # type: ignore[attr-defined]
    print(names, text, answer, wrong)


nightly = outlast.Schedule("nightly", order("Momo"), cron="0 2 * * *")
hourly = outlast.Schedule("hourly", order("Momo", 3), every=timedelta(hours=1))
wrong = outlast.Schedule("wrong", order(3), every=60)  # type: ignore[arg-type]
older = outlast.Schedule("older", order, every=60)  # type: ignore[arg-type]
