"""What a program does with runs from outside, on any store."""

from outlast.client.client import Client
from outlast.client.handle import RunHandle

__all__ = ["Client", "RunHandle"]
