"""A network of its own for a worker: a namespace of the kernel, and one wire to this machine that can
be pulled out. What is on its way then is lost, and nobody is told."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from contextlib import suppress
from functools import cache


class Network:
    """A namespace with a wire. `near` is this machine's address on it."""

    def __init__(self) -> None:
        # Others may have wires, too: a random pair of the addresses that are for one link alone.
        third, fourth = random.randrange(1, 255), 4 * random.randrange(1, 63)
        name = f"{os.getpid() % 0xFFFF:04x}{random.randrange(0xFFFF):04x}"
        self.name, self._wire, far = f"chaos{name}", f"oc{name}a", f"oc{name}b"
        self.near = f"169.254.{third}.{fourth + 1}"
        try:
            _ip("netns", "add", self.name)
            _ip("link", "add", self._wire, "type", "veth", "peer", "name", far)
            _ip("link", "set", far, "netns", self.name)
            _ip("addr", "add", f"{self.near}/30", "dev", self._wire)
            _ip("link", "set", self._wire, "up")
            _ip("-n", self.name, "addr", "add", f"169.254.{third}.{fourth + 2}/30", "dev", far)
            _ip("-n", self.name, "link", "set", far, "up")
            _ip("-n", self.name, "link", "set", "lo", "up")
        except BaseException:
            self.remove()
            raise

    @staticmethod
    @cache
    def missing() -> str | None:
        """Why there can be none on this machine; None if there can."""
        if shutil.which("ip") is None:
            return "there is no `ip` (iproute2)"
        try:
            Network().remove()
        except subprocess.CalledProcessError as refused:
            return f"`{' '.join(refused.cmd)}` is refused: {refused.stderr.decode().strip()}"
        return None

    def enter(self) -> list[str]:
        """What to write before a command, so that it runs there."""
        return ["ip", "netns", "exec", self.name]

    def pull(self) -> None:
        """Pull the wire out."""
        _ip("link", "set", self._wire, "down")

    def plug(self) -> None:
        """Put it in again."""
        _ip("link", "set", self._wire, "up")

    def remove(self) -> None:
        """It is over. Removing twice is fine."""
        for what in (("link", "del", self._wire), ("netns", "del", self.name)):
            with suppress(subprocess.CalledProcessError):
                _ip(*what)


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)
