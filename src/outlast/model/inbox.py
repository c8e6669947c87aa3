"""Inbox: messages to a run that its owner has not yet recorded in its history.

Every process but the owner writes here. The store numbers the items of a run 1, 2, 3 … in the order
of arrival. The commit that records an item also consumes it, so it takes effect exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from outlast.model.ids import new_id
from outlast.model.times import EPOCH

RECEIPTS_CARRIED = 1000
"""How many receipts a new life takes over with the inbox: an item that is sent again is recognised.
The receipts of items that wait are always kept."""


class Item(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message to a run. `kind` says what it is (signal, result, cancel …); `id` is the idempotency
    key: an id is received once in a life of the run."""

    kind: str
    name: str = ""
    id: str = msgspec.field(default_factory=new_id)
    data: Raw | None = None
    sender: str = ""
    number: int = 0
    sent_at: datetime = EPOCH


class Send(Struct, frozen=True, kw_only=True):
    """An item and its receiver. With `uid` only that life of the run receives it."""

    run_id: str
    item: Item
    uid: str | None = None


class Receipt(Struct, frozen=True):
    """An item is in the inbox. `again`: it was received before."""

    number: int
    again: bool = False


def refusing(sends: Sequence[Send], receipts: Sequence[object]) -> set[str]:
    """The runs that have refused an item."""
    return {
        send.run_id
        for send, receipt in zip(sends, receipts, strict=True)
        if not isinstance(receipt, Receipt)
    }
