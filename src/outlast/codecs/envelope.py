"""Envelopes: JSON values that outlast put there itself, told apart from the user's.

An envelope is a JSON object with exactly one key, and that key starts with ``~``::

    {"~zlib": "eJyrVkrL…"}      the text, compressed
    {"~fact": "9f86d081…"}      the text is stored elsewhere, under this hash
    {"~json": {"~zlib": 1}}     the user's own value, which happens to look like an envelope

Only the outermost object is ever looked at. A user's value which has that form is put into a
``~json`` envelope when it is encoded, so nothing a user stores can pass for one of ours, and
whatever lies deeper is data. (Serializers that honour their marker at any depth have let stored
data choose what is built: CVE-2025-68664, CVE-2025-64439.)

Tags are written here without the ``~``.
"""

from __future__ import annotations

import re

import msgspec

JSON = "json"
"""The tag of a user's value that looks like an envelope."""

FACT = "fact"
"""The tag of a value stored once by its hash. The engine resolves it; codecs never see it."""


def wrap(tag: str, value: msgspec.Raw | bytes) -> msgspec.Raw:
    """The envelope `tag` around `value`, which is JSON text."""
    return msgspec.Raw(b'{"~%b":%b}' % (tag.encode(), bytes(value)))


def unwrap(data: msgspec.Raw | bytes) -> tuple[str, msgspec.Raw] | None:
    """The tag of an envelope and the JSON text in it, or None if `data` is anything else.

    Malformed JSON is not an envelope either: whoever decodes it next has the better error.
    """
    if _may_be_one(data) is None:
        return None
    try:
        members = _MEMBERS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if len(members) != 1:
        return None
    ((key, value),) = members.items()
    return (key[1:], value) if key.startswith("~") else None


def escape(data: msgspec.Raw | bytes) -> msgspec.Raw:
    """The user's JSON text in a form that `unwrap` does not take for one of our envelopes."""
    if _may_be_one(data) is not None and unwrap(data) is not None:
        return wrap(JSON, data)
    return data if isinstance(data, msgspec.Raw) else msgspec.Raw(data)


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])

# Our own encoder writes no whitespace and no escape for "~", but text that was imported may hold
# both: `{ "\u007ezlib" : … }` is the same JSON. The members are parsed only if this matches.
_may_be_one = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"[~\\]').match
