"""Everything that a step may return can be sent to a run, shown by it, and reported."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import InvalidValue
from outlast.model import Status
from outlast.testing import app, crash_everywhere


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Price:
    amount: Decimal


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
VALUES: list[Any] = [
    *(Decimal("1.50"), uuid.UUID(int=7), NOON, Colour.RED, b"\x00\xff"),
    *(Price(Decimal("9.99")), (1, "a"), {"x", "y"}, {"at": NOON, "items": [(Decimal(1),)]}),
]
values = pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store is."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


undone: list[str] = []


@outlast.step
async def pay() -> None: ...


@pay.compensate
async def refund(_: None) -> None:
    undone.append("pay")


def kind_of(value: Any) -> Any:
    return dict[str, Any] if isinstance(value, dict) else type(value)


@values
async def test_messages_carry_every_kind(url: str, value: Any) -> None:
    """By signal, update and answer, restored by the declared type; the handler may be without one."""
    kind = kind_of(value)

    @outlast.workflow
    async def conversation() -> list[bool]:
        asked: list[Any] = []

        @outlast.on_update
        def keep(given: Any) -> Any:
            asked.append(given)
            return given

        by_signal = await outlast.wait_for_signal("value", kind)
        by_answer = await outlast.halt(value, kind)
        return [by_signal == value, by_answer == value, len(asked) == 1]

    async with app(conversation, store=url) as virtual:
        run = await virtual.start(conversation(), id="r")
        assert await run.update("keep", value, kind) == value
        await run.signal("value", value)
        await virtual.clock.settle()
        assert (await run.status()).status is Status.HALTED
        await run.resume(value)
        assert await run.result() == [True, True, True]


@values
async def test_a_run_shows_every_kind(url: str, value: Any) -> None:
    """Published values and the data of a question: showing one never fails a run."""
    kind = kind_of(value)

    @outlast.workflow
    async def shows() -> None:
        await pay()
        outlast.publish(value=value, at=outlast.now())
        await outlast.halt(value)

    undone.clear()
    async with app(shows, store=url) as virtual:
        run = await virtual.start(shows(), id="r")
        await virtual.clock.settle()
        assert (await run.status()).status is Status.HALTED
        assert await run.query("value", kind) == value
        assert isinstance(await run.query("at"), datetime)
        await run.resume()
        await run.result()
    assert undone == []


async def test_attributes_are_stored_as_what_can_be_searched(url: str) -> None:
    """A moment in UTC and a UUID as text, an Enum member as its value, a Decimal as a number; what has no such
    form is refused, at a start as in the code."""

    @outlast.workflow
    async def labelled() -> None:
        outlast.set_attributes(price=Decimal("9.5"), count=Decimal(3), at=NOON, colour=Colour.RED)

    async with app(labelled, store=url) as virtual:
        run = await virtual.start(
            labelled(), id="r", attributes={"tenant": uuid.UUID(int=7), "day": NOON.date()}
        )
        await run.result()
        assert (await virtual.get("r").status()).attributes == {
            "tenant": str(uuid.UUID(int=7)),
            "day": "2030-01-01",
            "price": 9.5,
            "count": 3,
            "at": "2030-01-01T12:00:00+00:00",
            "colour": "red",
        }
        with pytest.raises(InvalidValue, match="tenant"):
            await virtual.start(labelled(), attributes={"tenant": b"x"})  # type: ignore[dict-item]


reports: list[Any] = []


@outlast.step(retry=outlast.Retry(attempts=2, delay=0))
async def long(_: int) -> None:
    reports.append(outlast.last_heartbeat())
    outlast.heartbeat({"cost": Decimal("1.5"), "at": NOON})
    if len(reports) == 1:
        raise ConnectionError("again")


@outlast.workflow
async def reporting() -> None:
    await long(1)


async def test_a_heartbeat_carries_every_kind(url: str) -> None:
    """The next attempt reads what the last one reported."""
    reports.clear()
    async with app(reporting, store=url) as virtual:
        await (await virtual.start(reporting(), id="r")).result()
    assert reports == [None, {"cost": Decimal("1.5"), "at": NOON}]


@outlast.workflow
async def awaiting(price: Decimal) -> str:
    given = await outlast.wait_for_signal("value")
    answer = await outlast.halt({"price": price, "given": given})
    return f"{given!r} {answer!r}"


async def test_a_crash_anywhere_changes_no_value() -> None:
    """What was sent comes back from history and from snapshots as it came live."""
    sweep = await crash_everywhere(
        awaiting,
        Decimal("1.0"),
        actions=[
            lambda run: run.signal("value", (Decimal("2.0"), NOON.date())),
            lambda run: run.resume({NOON}),
        ],
        sample=30,
    )
    assert "Decimal('2.0')" in str(sweep.ending.runs["run"].result)
    assert sweep.crashes > 10


async def test_a_fork_with_other_arguments(url: str) -> None:
    """Of any kind that the workflow declares; without the code of a start the kinds arrive, too."""

    @outlast.step
    async def charge(amount: Decimal) -> str:
        return f"charged {amount}"

    @outlast.workflow
    async def order(amount: Decimal) -> str:
        return await charge(amount)

    async with app(order, store=url) as virtual:
        await (await virtual.start("order", [Decimal("1.5")], id="o")).result()
        forked = await virtual.get("o").fork("charge", id="f", input={"amount": Decimal("2.5")})
        assert await forked.result() == "charged 2.5"
        assert await virtual.get("o").result() == "charged 1.5"
