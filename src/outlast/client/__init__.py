"""Everything that can be done to runs from outside, on any store."""

from outlast.client.client import Client
from outlast.client.handle import RunHandle

__all__ = ["Client", "RunHandle"]
