"""Ports: the contracts between outlast and the world. Their docstrings are the specification."""

from outlast.ports.clock import Clock, SystemClock
from outlast.ports.codec import Codec, Transform
from outlast.ports.notifier import LocalNotifier, Notifier, WakeupChannel
from outlast.ports.port import Capability, Durability
from outlast.ports.queue import Queue
from outlast.ports.store import Store

__all__ = [
    "Capability",
    "Clock",
    "Codec",
    "Durability",
    "LocalNotifier",
    "Notifier",
    "Queue",
    "Store",
    "SystemClock",
    "Transform",
    "WakeupChannel",
]
