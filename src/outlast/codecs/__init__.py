"""Codecs: how values become JSON text and come back, exactly or not at all.

`JsonCodec` is the default; ``JsonCodec() | Zlib()`` compresses. The contract is in
`outlast.ports.codec`.
"""

from outlast.codecs.chain import Chain, Zlib
from outlast.codecs.json import JsonCodec

__all__ = ["Chain", "JsonCodec", "Zlib"]
