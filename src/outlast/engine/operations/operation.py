"""Operation: one thing that workflow code has asked for, open until history answers it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from outlast.model.event import Event
from outlast.model.payloads import Payload


class Operation(ABC):
    """Asked for once, under a key that replay finds again."""

    name: str
    key: str = ""
    recorded: bool = False

    @abstractmethod
    def intent(self) -> Payload:
        """What to record before anything is done about it."""

    @abstractmethod
    def apply(self, event: Event) -> bool:
        """Take in an event with this key; True if it answers the operation, so that the code
        that awaits it goes on and the operation is no longer open."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether something is being done for it in this process, so that the run stays here."""
