"""Steps, workflows and apps that are declared wrongly: typed errors that say what to do."""

from __future__ import annotations

import pickle  # noqa: TID251 - what others may do with it
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import outlast
from outlast.errors import OutlastError, WorkflowMisuse
from outlast.testing import app

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypes


def plain(number: int) -> int:
    return number


step: Any = outlast.step(name="declared")(plain)
workflow: Any = outlast.workflow(name="declared")(plain)


class Shop:
    """Methods in all the wrong places."""

    def method(self, number: int) -> int:
        return number

    below = staticmethod(plain)
    of_the_class = classmethod(plain)  # type: ignore[var-annotated, arg-type]


@pytest.mark.parametrize("declare", [outlast.step, outlast.workflow])
@pytest.mark.parametrize(
    "function,says",
    [
        (step, "decorate the function once"),
        (workflow, "decorate the function once"),
        (lambda number: number, "use a `def`, or name="),
        (partial(plain, 1), "decorate a `def`"),
        (Shop.method, "is a method"),
        (Shop.__dict__["below"], "put @staticmethod above"),
        (Shop.__dict__["of_the_class"], "put @staticmethod above"),
        (Shop, "is not a function"),
        ("charge", "give options by name"),
    ],
)
def test_what_cannot_be_a_step_or_a_workflow(declare: Any, function: Any, says: str) -> None:
    """Each is refused where it is declared, not in a run."""
    with pytest.raises(WorkflowMisuse, match=says):
        declare(function)


async def test_a_name_makes_a_step_of_what_has_none() -> None:
    """A lambda can be a step, if history can know it by something."""
    double: Any = outlast.step(name="double")(lambda number: 2 * number)

    @outlast.workflow
    async def calls() -> int:
        return await double(4)  # type: ignore[no-any-return]

    async with outlast.App("memory:", workflows=[calls]) as app:
        assert await (await app.start(calls())).result(timeout=20) == 8


@pytest.mark.parametrize(
    "options,says",
    [
        ({"timeout": "5"}, "positive timeout in seconds"),
        ({"timeout": timedelta(seconds=-5)}, "positive timeout in seconds"),
        ({"timeout": float("nan")}, "positive timeout in seconds"),
        ({"timeout": float("inf")}, "positive timeout in seconds"),
        ({"retry": 5}, "outlast.Retry"),
        ({"name": ""}, "empty"),
    ],
)
def test_options_of_a_step(options: dict[str, Any], says: str) -> None:
    """What would fail in the middle of a run is refused here."""
    with pytest.raises(OutlastError, match=says):
        outlast.step(**options)(plain)


@pytest.mark.parametrize(
    "options,says",
    [
        ({"attempts": "3"}, "whole number"),
        ({"attempts": 2.5}, "whole number"),
        ({"delay": "x"}, "delay='x'"),
        ({"delay": float("nan")}, "delay=nan"),
        ({"max_delay": "x"}, "max_delay='x'"),
        ({"give_up_on": ValueError}, "tuple of classes"),
        ({"on": [ValueError]}, "tuple of classes"),
        ({"on": ("ValueError",)}, "tuple of classes"),
    ],
)
def test_options_of_a_retry(options: dict[str, Any], says: str) -> None:
    """A policy that cannot decide would keep the run of the first error for ever."""
    with pytest.raises(OutlastError, match=says):
        outlast.Retry(**options)


def test_a_version_is_a_number_or_a_text() -> None:
    """It goes into history."""
    with pytest.raises(OutlastError, match="version="):
        outlast.workflow(version=None)(plain)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "given,says",
    [
        ({"store": None}, "is not a store"),
        ({"store": Path("shop.db")}, "use a URL such as"),
        ({"workflows": [plain]}, "@outlast.workflow"),
        ({"workflows": [step]}, "@outlast.workflow"),
        ({"workflows": workflow}, r"workflows=\[checkout\]"),
        ({"steps": [workflow]}, "@outlast.step"),
        ({"steps": step}, r"steps=\[render\]"),
        ({"lease": "30"}, "a lease of '30'"),
        ({"lease": None}, "a lease of"),
    ],
)
def test_what_an_app_is_given(given: dict[str, Any], says: str) -> None:
    """Each mistake has an error of ours."""
    with pytest.raises(OutlastError, match=says):
        outlast.App(**{"store": "memory:", **given})


async def test_annotations_that_exist_for_type_checkers_alone() -> None:
    """Values are restored by them, so they have to be there; nothing is begun before."""

    @outlast.workflow
    async def pays(amount: OnlyForTypes) -> None:
        return None

    async with outlast.App("memory:", workflows=[pays]) as app:
        with pytest.raises(WorkflowMisuse, match="not under `if TYPE_CHECKING`"):
            await app.start(pays(1))  # type: ignore[arg-type]
        assert [run async for run in app.client.find()] == []


@outlast.step
async def decorated(number: int) -> int:
    return number


def test_steps_and_workflows_are_pickled_by_name() -> None:
    """As functions are, so that a pool of processes can be given one."""
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert repr(decorated) == "<step decorated>"
    assert repr(workflow) == "<workflow declared>"


@outlast.step
async def charge_the_card(cents: int) -> int:
    """What nobody may forget."""
    return cents


@outlast.workflow
async def forgets() -> None:
    """A workflow with a slip."""
    charge_the_card(1)  # type: ignore[unused-coroutine]


async def test_a_step_that_is_not_awaited_is_named() -> None:
    """Python's warning tells which one: nothing was done, and the run goes on."""
    with pytest.warns(RuntimeWarning, match="'charge_the_card' was never awaited"):
        async with app(forgets) as testing:
            await (await testing.start(forgets())).result()
