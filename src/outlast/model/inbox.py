"""Inbox: what others have sent to a run and its owner has not yet recorded in its history.

Everybody but the owner writes here. The store numbers the items of a run 1, 2, 3 … in the order
of arrival; the commit that consumes an item removes it, so nothing is lost and nothing is doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from outlast.model.ids import new_id
from outlast.model.times import EPOCH

RECEIPTS_CARRIED = 1000
"""How many of its last items a run remembers, when it begins another life with its inbox: one of them
that is sent again is taken for what it is. The receipts of items that wait are always kept."""


class Item(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing sent to a run. `kind` says what it is (signal, result, cancel …); `id` is the
    deduplication key: the same id is taken once in a life of the run."""

    kind: str
    name: str = ""
    id: str = msgspec.field(default_factory=new_id)
    data: Raw | None = None
    sender: str = ""
    number: int = 0
    sent_at: datetime = EPOCH


class Send(Struct, frozen=True, kw_only=True):
    """An item and the run it is for. With `uid` it reaches that life of the run or nobody."""

    run_id: str
    item: Item
    uid: str | None = None


class Receipt(Struct, frozen=True):
    """The store's word that an item is in the inbox. `again` means that it had been there."""

    number: int
    again: bool = False


def refusing(sends: Sequence[Send], receipts: Sequence[object]) -> set[str]:
    """The runs that have refused an item."""
    return {
        send.run_id
        for send, receipt in zip(sends, receipts, strict=True)
        if not isinstance(receipt, Receipt)
    }
