"""What becomes of an order. outlast finds this module by its name."""

import os

from django.db.models import F

import outlast
from orders.models import Booking, Item, Order

LARGE = 100


@outlast.step(transactional=True)
def book(order_id: int) -> None:
    """Take it out of stock: the rows and the completion of this step are one commit."""
    order = Order.objects.get(pk=order_id)
    Item.objects.filter(pk=order.item_id).update(stock=F("stock") - 1)
    Booking.objects.create(order=order)
    if os.environ.get("SHOP_DIE") == "booking":
        os.kill(os.getpid(), 9)  # for the test: nothing of this was ever there


@outlast.step(transactional=True)
def move_to(order_id: int, state: str) -> str:
    Order.objects.filter(pk=order_id).update(state=state)
    return state


@outlast.workflow
async def checkout(order_id: int, amount: int) -> str:
    await book(order_id)
    if amount >= LARGE:
        await move_to(order_id, "waits for approval")
        if not await outlast.wait_for_signal("approval", bool):
            return await move_to(order_id, "refused")
    return await move_to(order_id, "shipped")
