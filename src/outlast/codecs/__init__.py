"""Codecs: encode values as JSON text and decode them exactly, or refuse them.

`JsonCodec` is the default; ``JsonCodec() | Zlib()`` compresses. The contract is in
`outlast.ports.codec`.
"""

from outlast.codecs.chain import Chain, Zlib
from outlast.codecs.json import JsonCodec

__all__ = ["Chain", "JsonCodec", "Zlib"]
