"""Draft: what a turn has gathered and the next commit makes durable."""

from __future__ import annotations

from msgspec import Raw, Struct

from outlast.model.commit import Start
from outlast.model.event import Event
from outlast.model.fact import Fact
from outlast.model.inbox import Send
from outlast.model.run import Attribute
from outlast.model.task import Task


class Draft(Struct):
    """Gathered while the code runs, sealed into one commit, and then begun anew."""

    events: list[Event] = []
    folds: list[int] = []
    starts: list[Start] = []
    sends: list[Send] = []
    tasks: list[Task] = []
    drops: list[str] = []
    facts: list[Fact] = []
    published: dict[str, Raw] = {}
    attributes: dict[str, Attribute] = {}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.events or self.folds or self.sends or self.published or self.attributes)
