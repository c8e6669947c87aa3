"""A question to the person at the terminal."""

from __future__ import annotations

import signal
import sys

import click

from outlast.cli.codes import Exit
from outlast.cli.neutral import neutral


def confirm(question: str, otherwise: str) -> None:
    """Go on only if the answer is yes. Where nobody can be asked, `otherwise` says what to add to
    the command line; no is exit code 1, and Ctrl-C what it always is."""
    if not sys.stdin.isatty():
        raise click.UsageError(otherwise)
    # The loop would wait for the answer before it looks at Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        answer = click.confirm(neutral(question), err=True)
    except click.Abort:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, before)
    if not answer:
        click.echo("nothing was changed", err=True)
        raise SystemExit(Exit.FOUND)
