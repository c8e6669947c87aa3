"""Redaction: chosen fields of users' values are blotted out before they leave the store."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Raw, Struct

from outlast.errors import Undecodable
from outlast.model.event import Event
from outlast.model.event_data import payload_of
from outlast.model.json import to_json
from outlast.model.run import Run
from outlast.model.run_contents import Fact

S = TypeVar("S", bound=Struct)
BLOT = "[redacted]"


class Redaction:
    """Replaces the value of every field with one of these names, however deep, in what users gave:
    inputs, outputs, signals, published values, attributes. Names are compared without case."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.names = {name.casefold() for name in names}

    def run(self, run: Run) -> Run:
        """A run without what is to be kept back."""
        if not self.names:
            return run
        safe = self._struct(run)
        return msgspec.structs.replace(
            safe,
            ctx={
                name: Raw(b'"[redacted]"') if self._kept(name) else self._raw(value)
                for name, value in run.ctx.items()
            },
            attributes={
                name: BLOT if self._kept(name) else value for name, value in run.attributes.items()
            },
        )

    def event(self, event: Event, hashes: dict[str, str]) -> Event:
        """An event without it; facts that were changed are named by their new hash."""
        if not self.names:
            return event
        try:
            payload = payload_of(event)
        except Undecodable:
            data = self._raw(event.data)
        else:
            data = Raw(to_json(self._struct(payload)))
        text = bytes(data)
        for old, new in hashes.items():
            text = text.replace(old.encode(), new.encode())
        output = None if event.output is None else self._raw(event.output)
        return msgspec.structs.replace(event, data=Raw(text), output=output)

    def fact(self, fact: Fact) -> Fact:
        """A fact without it, under the hash that it then has."""
        if not self.names:
            return fact
        return Fact.of(bytes(self._raw(Raw(fact.data))), fact.root)

    def value(self, value: S) -> S:
        """An inbox item, a task, an audit line or an activity state without it."""
        return self._struct(value)

    def _struct(self, value: S) -> S:
        changes: dict[str, Any] = {}
        for name in _raw_fields(type(value)) if self.names else ():
            old = getattr(value, name)
            if isinstance(old, Raw):
                changes[name] = self._raw(old)
            elif isinstance(old, list):
                changes[name] = [self._raw(one) if isinstance(one, Raw) else one for one in old]
        return msgspec.structs.replace(value, **changes)

    def _raw(self, raw: Raw) -> Raw:
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Raw(b'"[redacted: not JSON]"')
        return Raw(msgspec.json.encode(self._value(value)))

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: BLOT if self._kept(name) else self._value(inner)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._value(inner) for inner in value]
        return value

    def _kept(self, name: str) -> bool:
        return name.casefold() in self.names


@cache
def _raw_fields(type: type[Struct]) -> tuple[str, ...]:
    """The fields that hold what users gave."""
    return tuple(
        name
        for name, hint in get_type_hints(type).items()
        if name in type.__struct_fields__ and (hint is Raw or Raw in get_args(hint))
    )
