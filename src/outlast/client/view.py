"""RunView: the record of a run as plain values, ready for a web page or a log.

Values are decoded by the client's codec without the workflow's types, so that a view looks the same in every
process. One that cannot be decoded, because a key is missing or the bytes are damaged, is an `Unreadable` that says
why; the others are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from outlast._public import public
from outlast.engine.definitions.signature import POSITIONAL
from outlast.errors import OutlastError
from outlast.model.asks import without_asks
from outlast.model.run import Attribute, Run, Status
from outlast.ports.codec import Codec

_arguments = msgspec.json.Decoder(dict[str, Raw]).decode
_positional = msgspec.json.Decoder(list[Raw]).decode


@public
class Unreadable(dict[str, str]):
    """A value that cannot be decoded: ``{"unreadable": why}``."""

    @property
    def reason(self) -> str:
        """Why it cannot be decoded."""
        return self["unreadable"]


@public
@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """A run at one moment: what it was given, how it stands, what it gave.

    `input` has the arguments by name; those of a start by name without the code are under ``*``. `published` has what
    the workflow published, `halt_data` what it shows while it waits for a person. `msgspec.json.encode(view)` and
    ``json.dumps(view.to_dict())`` are JSON.
    """

    id: str
    workflow: str
    status: Status
    input: dict[str, Any]
    result: Any
    error: str | None
    published: dict[str, Any]
    attributes: dict[str, Attribute]
    wait_kind: str | None
    halt_data: Any
    current_step: str | None
    recover_to: str | None
    parent: str | None
    queue: str
    priority: int
    version: int | str
    uid: str
    sequence: int
    revision: int
    inbox: int
    owner: str | None
    claimed_until: datetime | None
    runnable_at: datetime | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    moved_to: str | None

    def to_dict(self) -> dict[str, Any]:
        """The view as JSON values: dicts, lists, text, numbers; times as ISO 8601 text."""
        values: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return values


def view_of(run: Run, codec: Codec) -> RunView:
    """The view of a record."""
    return RunView(
        input=_input(run.input, codec),
        result=shown(run.result, codec, "result"),
        published={
            name: shown(value, codec, f"published {name!r}") for name, value in run.ctx.items()
        },
        attributes=without_asks(run.attributes),
        halt_data=shown(run.halt_data, codec, "data of the halt"),
        **{name: getattr(run, name) for name in _COPIED},
    )


_COPIED = [
    field.name
    for field in fields(RunView)
    if field.name not in ("input", "result", "published", "halt_data", "attributes")
]


def _input(recorded: Raw | None, codec: Codec) -> dict[str, Any]:
    if recorded is None:
        return {}
    try:
        found = _arguments(recorded)
        positional = _positional(found.pop(POSITIONAL, b"[]"))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Unreadable(unreadable=f"the recorded input is damaged: {error}")
    given = {name: shown(value, codec, f"argument {name!r}") for name, value in found.items()}
    if positional:
        return {POSITIONAL: [shown(one, codec, "argument") for one in positional], **given}
    return given


def shown(recorded: Raw | None, codec: Codec, where: str) -> Any:
    """A recorded value as plain data; an `Unreadable` if it cannot be decoded."""
    if recorded is None:
        return None
    try:
        return msgspec.to_builtins(codec.decode(recorded, where=where), enc_hook=str)
    except OutlastError as error:
        return Unreadable(unreadable=str(error))
