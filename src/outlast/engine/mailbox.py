"""Mailbox: signals and updates that have come and that nobody has asked for yet."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from msgspec import Raw

from outlast.engine.execution import Execution
from outlast.engine.operations.signal import SignalWait
from outlast.model.inbox import Item
from outlast.model.payloads import SignalReceived, UpdateAccepted


class Mailbox:
    """By kind and name, in the order in which they came."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], deque[Item]] = {}

    @property
    def has_any(self) -> bool:
        """Whether anything is here."""
        return bool(self._items)

    @property
    def signals(self) -> list[str]:
        """The names of the signals that are here."""
        return sorted(name for kind, name in self._items if kind == "signal")

    def put(self, item: Item) -> None:
        """A signal or an update has come."""
        self._items.setdefault((item.kind, item.name), deque()).append(item)

    def match(self, execution: Execution, now: datetime) -> None:
        """Hand over what somebody wants, as long as there is any."""
        while self._items and (self._signal(execution, now) or self._update(execution, now)):
            pass

    def _signal(self, execution: Execution, now: datetime) -> bool:
        for wait in execution.open.values():
            if isinstance(wait, SignalWait):
                item = self._take("signal", wait.signal, execution)
                if item is not None:
                    received = SignalReceived(signal_name=item.name, payload=item.data)
                    execution.deliver(received, now, key=wait.key)
                    return True
        return False

    def _update(self, execution: Execution, now: datetime) -> bool:
        for name in execution.updates.names:
            item = self._take("update", name, execution)
            if item is not None:
                input = item.data or Raw(b"null")
                # One that is sent again by a retry names the update that it stands for.
                id = item.sender or item.id
                accepted = UpdateAccepted(update_id=id, name=name, input=input)
                execution.deliver(accepted, now, key=execution.updates.next_key(name))
                return True
        return False

    def _take(self, kind: str, name: str, execution: Execution) -> Item | None:
        """The oldest one, which leaves the inbox with the next commit."""
        items = self._items.get((kind, name))
        if not items:
            return None
        item = items.popleft()
        if not items:
            del self._items[kind, name]
        execution.draft.folds.append(item.number)
        return item
