"""Snapshot: the state of a run at a sequence, to shorten replay. A cache, never the truth.

The store keeps it as one blob with a header that says how to decode it. A snapshot that cannot be
decoded, or that belongs to another definition, is discarded, and the whole history is replayed.

::

    b"OLS1" | u32 length of header | header (JSON) | body
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import Raw, Struct

from outlast.errors import Undecodable
from outlast.model.json import from_json, to_json
from outlast.model.times import EPOCH

MAGIC = b"OLS1"


class Snapshot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a run at `sequence`: recover from it and the events after it."""

    run_id: str
    sequence: int
    data: bytes
    definition: str = ""
    codec: str = "json"
    created_at: datetime = EPOCH

    def pack(self) -> bytes:
        """The envelope with this snapshot inside."""
        header = msgspec.json.encode(
            _Header(self.run_id, self.sequence, self.definition, self.codec, self.created_at)
        )
        return b"".join((MAGIC, len(header).to_bytes(4, "big"), header, self.data))

    @classmethod
    def unpack(cls, envelope: bytes) -> Snapshot:
        """Decode an envelope; `Undecodable` if it is damaged or of an unknown format."""
        if envelope[:4] != MAGIC:
            raise Undecodable(
                f"a snapshot starts with {envelope[:4]!r}, not {MAGIC!r}: it is damaged or of a newer "
                "format. Delete it; the engine then replays the history"
            )
        end = 8 + int.from_bytes(envelope[4:8], "big")
        try:
            header = msgspec.json.decode(envelope[8:end], type=_Header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Undecodable(f"the header of a snapshot is damaged: {error}") from error
        return cls(
            run_id=header.run_id,
            sequence=header.sequence,
            data=envelope[end:],
            definition=header.definition,
            codec=header.codec,
            created_at=header.created_at,
        )


class Position(StrEnum):
    """The position of a run, for engines of your own."""

    NOT_STARTED = "not_started"
    AT_TASK = "at_task"
    AT_FORK = "at_fork"
    AT_JOIN = "at_join"


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A ready-made snapshot body for engines that go from task to task: the input, the outputs of
    completed tasks, and the position."""

    input: Raw | None = None
    completed: dict[str, Raw] = {}
    position: Position = Position.NOT_STARTED
    at: list[str] = []
    last_completed: str | None = None

    def encode(self) -> bytes:
        """The body to put in `Snapshot.data`."""
        return to_json(self)

    @classmethod
    def decode(cls, body: bytes) -> Progress:
        """Decode a body; `Undecodable` if it is damaged."""
        return from_json(body, cls, where="this snapshot")


class _Header(Struct, frozen=True, array_like=True):
    run_id: str
    sequence: int
    definition: str
    codec: str
    created_at: datetime
