"""Asks: where the open questions of a run to people are, and what an answer to one says.

A question is an event (``halt.started``) and belongs to its run. So that the open ones of all runs are found
without reading histories, the commit that opens or closes one keeps three kinds of attributes on the run, which
every store indexes::

    outlast.ask                True               the run has an open question
    outlast.ask.to:finance     True               one of them is to finance
    outlast.ask:f3kq7xa2       "17 0 finance"     event 17 asks it, 0 answers were rejected, it is to finance

The title, the data and the form are read from the event, so a record stays small however much a question shows.
"""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct

from outlast._public import public
from outlast.errors import InvalidId
from outlast.model.run import Attribute

ASKING = "outlast.ask"
ASKED_TO = f"{ASKING}.to:"
_ASK = f"{ASKING}:"
PLACE = "/"


@public
@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question to a person, as one task: what is asked, whom, until when, and how it stands.

    `schema` is the JSON schema of an answer; None if every value answers it. `status` is ``open``, ``answered``, or
    ``closed``: the run no longer asks. `by` and `answered_at` say who answered and when.
    """

    id: str
    run_id: str
    workflow: str = ""
    name: str = ""
    title: str = ""
    to: str = ""
    data: Any = None
    schema: dict[str, Any] | None = None
    asked_at: datetime | None = None
    due_at: datetime | None = None
    status: Literal["open", "answered", "closed"] = "open"
    answer: Any = None
    by: str = ""
    answered_at: datetime | None = None

    def is_overdue(self, now: datetime) -> bool:
        """Whether it is open and should have been answered by now."""
        return self.status == "open" and self.due_at is not None and self.due_at <= now

    def to_dict(self) -> dict[str, Any]:
        """The question as JSON values."""
        values: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return values


class OpenAsk(NamedTuple):
    """An open question of a run: which event asks it, how many answers to it were rejected, and whom it asks."""

    token: str
    sequence: int
    rejected: int = 0
    to: str = ""

    @property
    def item_id(self) -> str:
        """The id of the inbox item that answers it. The store accepts one item of an id, so the first answer counts.
        After a rejected answer the question takes another one."""
        return f"answer {self.token} {self.rejected}" if self.rejected else f"answer {self.token}"


class Answer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an inbox item of kind ``resume`` says. `id` is that of the answer, `ask` the token of its question. `at` and
    `question` are set if an earlier life of the run has received it: when, and the data of the event that asked."""

    id: str
    ask: str
    value: Raw
    by: str = ""
    at: datetime | None = None
    question: Raw | None = None


def token_of(uid: str, key: str) -> str:
    """What distinguishes a question from all others of its run: the life that asks it, and its key."""
    digest = hashlib.blake2b(f"{uid} {key}".encode(), digest_size=5).digest()
    return b32encode(digest).decode().lower()


def ask_id(run_id: str, token: str) -> str:
    """The id of a question in its store."""
    return f"{run_id}{PLACE}{token}"


def parse_ask_id(id: object) -> tuple[str, str]:
    """The run and the token of the id of a question."""
    run_id, _, token = id.rpartition(PLACE) if isinstance(id, str) else ("", "", "")
    if not run_id or not token:
        raise InvalidId(
            f"{id!r} is not the id of a question: use the `id` of an ask, as `outlast asks ls` shows it"
        )
    return run_id, token


def asks_in(attributes: Mapping[str, Attribute]) -> list[OpenAsk]:
    """The open questions of a run, in the order in which they were asked."""
    found = []
    for name, value in attributes.items():
        if name.startswith(_ASK):
            sequence, rejected, to = str(value).split(" ", 2)
            found.append(OpenAsk(name.removeprefix(_ASK), int(sequence), int(rejected), to))
    return sorted(found, key=lambda ask: ask.sequence)


def without_asks(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """The attributes of a run that has no open question."""
    return {name: value for name, value in attributes.items() if not name.startswith(ASKING)}


def with_asks(attributes: Mapping[str, Attribute], asks: Iterable[OpenAsk]) -> dict[str, Attribute]:
    """The attributes of a run that has these open questions."""
    found = without_asks(attributes)
    for ask in asks:
        found[ASKING] = True
        found[f"{_ASK}{ask.token}"] = f"{ask.sequence} {ask.rejected} {ask.to}"
        if ask.to:
            found[f"{ASKED_TO}{ask.to}"] = True
    return found
