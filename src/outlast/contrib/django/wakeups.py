"""Who is woken in this process when a transaction commits."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.db import connections, transaction

from outlast.model.commit import Commit, Outcome, Refusal
from outlast.model.commit_rules import WakeupKind
from outlast.model.inbox import Receipt, Send
from outlast.ports.notifier import Notifier
from outlast.ports.store import Store

_listening: weakref.WeakSet[object] = weakref.WeakSet()


def listen(notifier: Notifier) -> None:
    """Wake those who wait on it whenever a transaction with something for them commits here."""
    _listening.add(notifier)


def wake_on_commit(alias: str, kind: WakeupKind = WakeupKind.ANY) -> None:
    """Wake the workers of this process when the transaction that is under way has been committed,
    or now if there is none."""
    own = connections[alias]
    # Where the user commits by hand, Django cannot tell when: workers look by themselves.
    if _listening and (own.in_atomic_block or own.get_autocommit()):
        transaction.on_commit(partial(_wake, kind), using=alias, robust=True)


def _wake(kind: WakeupKind) -> None:
    for notifier in list(_listening):
        notifier.wake_local(kind)  # type: ignore[attr-defined]


class WakingStore(Store):
    """A store in a transaction of the calling thread, before the one that does the work."""

    alias: str

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        outcomes = await super().commit(commits, atomic=atomic, timeout=timeout)  # type: ignore[safe-super]
        wake_on_commit(self.alias)
        return outcomes

    async def send(self, sends: Sequence[Send], **options: Any) -> list[Receipt | Refusal]:
        receipts = await super().send(sends, **options)
        wake_on_commit(self.alias)
        return receipts
