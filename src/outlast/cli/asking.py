"""A question to the person at the terminal.

It is asked on the loop, with Ctrl-C as one of the answers: `input` does not hear a Ctrl-C that comes
just before it begins to read, and the loop does not hear one while `input` reads.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import click

from outlast.cli.codes import Exit
from outlast.cli.text import neutral


async def confirm(question: str, otherwise: str) -> None:
    """Go on only if the answer is yes. Where nobody can be asked, `otherwise` says what to add to
    the command line; no is exit code 1, and Ctrl-C what it always is."""
    if not sys.stdin.isatty():
        raise click.UsageError(otherwise)
    if await _answer(f"{neutral(question)} [y/N]: ") not in ("y", "yes"):
        click.echo("nothing was changed", err=True)
        raise SystemExit(Exit.FOUND)


async def _answer(prompt: str) -> str:
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[bool] = loop.create_future()

    def hear(is_line: bool) -> None:
        if not heard.done():
            heard.set_result(is_line)

    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, hear, False)
    loop.add_reader(sys.stdin.fileno(), hear, True)
    try:
        click.echo(prompt, nl=False, err=True)
        if await heard:
            return sys.stdin.readline().strip().lower()
    finally:
        loop.remove_reader(sys.stdin.fileno())
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
    click.echo(err=True)
    raise KeyboardInterrupt
