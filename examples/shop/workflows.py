"""What becomes of an order: a book is taken from the shelf, paid for, and shipped."""

from __future__ import annotations

import outlast
from examples.shop.models import Book, Order


@outlast.step(transactional=True)
async def reserve(order_id: str) -> bool:
    """The book and the order change together with the record that this was done: exactly once."""
    session = outlast.connection()
    order = await session.get_one(Order, order_id)
    book = await session.get_one(Book, order.title, with_for_update=True)
    if book.stock == 0:
        order.state = "sold out"
        return False
    book.stock -= 1
    order.state = "reserved"
    return True


@outlast.step(transactional=True)
async def ship(order_id: str, payment: str) -> None:
    session = outlast.connection()
    order = await session.get_one(Order, order_id)
    order.state = f"shipped, paid by {payment}"


@outlast.workflow
async def fulfil(order_id: str) -> str:
    if not await reserve(order_id):
        return "sold out"
    payment = await outlast.wait_for_signal("payment", str)
    await ship(order_id, payment)
    return "shipped"
