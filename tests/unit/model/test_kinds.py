"""The kinds of messages and of waits: enums in code, the same open text in every store."""

from __future__ import annotations

import asyncio

import outlast
from outlast.model import Item, ItemKind, Status, WaitKind
from outlast.model.json import from_json, to_json
from outlast.stores.memory import MemoryStore


def test_the_stored_text_of_a_kind_never_changes() -> None:
    """Stored runs and items, SQL, Lua and queries of users have these texts."""
    assert [kind.value for kind in ItemKind] == [
        "signal", "update", "resume", "pause", "unpause", "cancel", "step", "child.completed",
        "child.failed", "admit", "receipt",
    ]  # fmt: skip
    assert [kind.value for kind in WaitKind] == [
        "timer", "signal", "child", "halt", "retry", "task", "scope", "loop", "queue", "mismatch",
        "bug", "moving", "moved",
    ]  # fmt: skip


def test_an_item_of_a_newer_release_is_read() -> None:
    """A kind that this release does not know is kept as it is."""
    item = from_json(b'{"kind":"wink","id":"1"}', Item, where="an item")
    assert item.kind == "wink"
    assert b'"kind":"cancel"' in to_json(Item(kind=ItemKind.CANCEL))


@outlast.workflow
async def waits_for_payment() -> int:
    """Wait for one signal."""
    paid: int = await outlast.wait_for_signal("paid", int)
    return paid


async def test_a_commit_has_the_plain_text() -> None:
    """A driver binds text faster than a member of an enum, and what people print is the text."""
    async with outlast.App(MemoryStore(), workflows=[waits_for_payment]) as app:
        run = await app.start(waits_for_payment(), id="order-1")
        while (record := await app.store.get("order-1")).status is not Status.WAITING:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert (record.wait_kind, type(record.wait_kind)) == ("signal", str)
        await run.signal("paid", 5)
        assert await run.result() == 5
