"""Workflows of the shop."""

from __future__ import annotations

import outlast
from outlast.contrib.django.conf import read_settings
from tests.unit.contrib.django.shop.models import Delivery, Payment


@outlast.step
def double(number: int) -> int:
    return 2 * number


@outlast.workflow
async def doubled(number: int) -> int:
    return await double(number)


@outlast.workflow
async def greeted() -> str:
    name: str = await outlast.wait_for_signal("name", str)
    return f"hello {name}"


@outlast.step(transactional=True)
def pay(order: str, amount: int) -> int:
    Payment.objects.using(read_settings().database).create(order=order, amount=amount)
    return amount


@outlast.workflow
async def bought(order: str, amount: int) -> int:
    return await pay(order, amount)


@outlast.workflow
async def refused(number: int) -> int:
    return await fail(number)


@outlast.step
def fail(number: int) -> int:
    raise ValueError(f"{number} is refused")


@outlast.step(transactional=True, retry=outlast.Retry(attempts=2, delay=0, jitter=0))
def pay_at_last(order: str) -> int:
    attempt = outlast.step_info().attempt
    Payment.objects.using(read_settings().database).create(order=order, amount=attempt)
    if attempt == 1:
        raise ConnectionError("the bank is closed")
    return attempt


@outlast.workflow
async def bought_twice(order: str) -> int:
    return await pay_at_last(order)


@outlast.step(transactional=True)
def refer_to_nobody() -> None:
    Delivery.objects.using(read_settings().database).create(order_id=4711)


@outlast.workflow
async def bought_badly() -> None:
    await refer_to_nobody()


@outlast.step(transactional=True)
async def in_the_loop() -> None:
    pass


@outlast.workflow
async def misplaced() -> None:
    await in_the_loop()


@outlast.workflow
async def patient() -> str:
    await outlast.sleep(days=30)
    return "here I am"
