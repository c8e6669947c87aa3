"""Draft: what a turn has gathered and the next commit makes durable."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Raw

from outlast.model.commit import Start
from outlast.model.event import Event
from outlast.model.fact import Fact
from outlast.model.inbox import Send
from outlast.model.run import Attribute


@dataclass
class Draft:
    """Gathered while the code runs, sealed into one commit, and then begun anew."""

    events: list[Event] = field(default_factory=list)
    folds: list[int] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    published: dict[str, Raw] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.events or self.folds or self.sends or self.published or self.attributes)
