"""What a program does with runs from outside, on any store."""

from outlast.client.asks import Asks
from outlast.client.client import Client, TransactionClient
from outlast.client.handle import RunHandle
from outlast.client.view import RunView, Unreadable

__all__ = ["Asks", "Client", "RunHandle", "RunView", "TransactionClient", "Unreadable"]
