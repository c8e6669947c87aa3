"""Mailbox: signals and updates that were sent and that the run has not taken yet."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from msgspec import Raw

from outlast.engine.execution import Execution
from outlast.engine.operations.signal import SignalWait
from outlast.model.inbox import Item
from outlast.model.payloads import SignalReceived, UpdateAccepted


class Mailbox:
    """By kind and name; of each the oldest first."""

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
        """Deliver what the run can take now, the oldest first: in the order of the inbox, whatever
        the names are. A delivery lets the code run, so what it can take is looked up after each."""
        while self._items:
            waits = _waits(execution)
            updates = execution.updates.names
            wanted = [
                (items[0].number, kind, name)
                for (kind, name), items in self._items.items()
                if name in (waits if kind == "signal" else updates)
            ]
            if not wanted:
                return
            _, kind, name = min(wanted)
            item = self._take(kind, name, execution)
            if kind == "signal":
                received = SignalReceived(signal_name=name, payload=item.data)
                execution.deliver(received, now, key=waits[name])
            else:
                input = item.data or Raw(b"null")
                # One that is sent again by a retry names the update that it stands for.
                id = item.sender or item.id
                accepted = UpdateAccepted(update_id=id, name=name, input=input)
                execution.deliver(accepted, now, key=execution.updates.next_key(name))

    def _take(self, kind: str, name: str, execution: Execution) -> Item:
        """The oldest one, which leaves the inbox with the next commit."""
        items = self._items[kind, name]
        item = items.popleft()
        if not items:
            del self._items[kind, name]
        execution.draft.folds.append(item.number)
        return item


def _waits(execution: Execution) -> dict[str, str]:
    """The keys of the waits for signals, by name: of several for one name, the one that asked first."""
    waits: dict[str, str] = {}
    for wait in execution.open.values():
        if isinstance(wait, SignalWait):
            waits.setdefault(wait.signal, wait.key)
    return waits
