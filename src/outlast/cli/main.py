"""The command `outlast`: imports the module of the named command, and turns errors into a message and an
exit code.

`outlast completion` is here too, because it completes the commands that this module lists.
"""

from __future__ import annotations

import importlib
import os
import sys
from difflib import get_close_matches
from enum import IntEnum
from typing import Any

import click
from click.shell_completion import get_completion_class

from outlast import __version__
from outlast.cli.output import neutral_lines
from outlast.errors import (
    MissingExtra,
    NotFound,
    OutlastError,
    Refused,
    RunError,
    StoreFault,
    TryAgain,
    UsageError,
)


class Exit(IntEnum):
    """The exit codes. Their meaning never changes."""

    OK = 0
    FOUND = 1  # doctor or db check found a problem; a confirmation was declined
    USAGE = 2  # the command line is wrong: nothing was done
    NOT_FOUND = 3  # no such run, or several ids with this prefix
    REFUSED = 4  # the store refused: the run has ended, exists already, or was changed meanwhile
    UNREACHABLE = 5  # the store cannot be reached or is busy: try again
    DAMAGED = 6  # the store or a file is damaged
    RUN_FAILED = 7  # the run that was waited for failed or was cancelled
    TIMED_OUT = 8  # the timeout of a wait
    INTERRUPTED = 130  # Ctrl-C
    PIPE_CLOSED = 141  # the reader of the output has closed the pipe


def code_of(error: BaseException) -> Exit:
    """The exit code for an error."""
    match error:
        case NotFound():
            return Exit.NOT_FOUND
        case MissingExtra() | UsageError() | FileNotFoundError() | PermissionError():
            return Exit.USAGE
        case Refused():
            return Exit.REFUSED
        case TryAgain() | ConnectionError():
            return Exit.UNREACHABLE
        case TimeoutError():
            return Exit.TIMED_OUT
        case RunError():
            return Exit.RUN_FAILED
        case StoreFault() | OutlastError() | OSError():
            return Exit.DAMAGED
    return Exit.FOUND


# Name → module in `commands/`, imported on first use.
COMMANDS = {
    "dev": "worker",
    "worker": "worker",
    "start": "start",
    "ls": "ls",
    "show": "show",
    "tail": "tail",
    "why": "show",
    "signal": "control",
    "update": "control",
    "cancel": "control",
    "terminate": "control",
    "pause": "control",
    "resume": "control",
    "asks": "asks",
    "retry": "control",
    "fork": "start",
    "rm": "control",
    "queues": "queue",
    "queue": "queue",
    "workers": "worker",
    "dead": "queue",
    "schedules": "schedules",
    "export": "transfer",
    "import": "transfer",
    "replay": "replay",
    "move": "transfer",
    "db": "db",
    "doctor": "doctor",
    "completion": "completion",
}


class Commands(click.Group):
    """The commands by name, each imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        if module == "completion":
            return completion_command
        loaded = importlib.import_module(f"outlast.cli.commands.{module}")
        command: click.Command = getattr(loaded, f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean `outlast {near[0]}`?" if near else "see `outlast --help`"
            ctx.fail(f"there is no command {args[0]!r}, {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Otherwise Python reports the unwritten buffer at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(Exit.PIPE_CLOSED)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(Exit.INTERRUPTED)
        except (OutlastError, OSError) as error:
            click.echo(f"outlast: {neutral_lines(str(error))}", err=True)
            ctx.exit(code_of(error))
        return answer


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="The store is --store URL, else OUTLAST_STORE, else `store` under [tool.outlast] in "
    "pyproject.toml, else the SQLite file of the current folder.",
)
@click.version_option(__version__, message="outlast %(version)s")
def cli() -> None:
    """Durable workflows: run an app, inspect runs, repair them.

    \b
      outlast dev app.py                        run the app in app.py, restart it at every change
      outlast ls 'status:failed age<1d'         list runs, newest first
      outlast show RUN                          show what a run has done
      outlast why RUN                           show what it waits for, and how to continue it
    """


def main() -> None:
    """The entry point of the console script."""
    cli(prog_name="outlast")


HOW = {
    "bash": 'eval "$(outlast completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(outlast completion zsh)"        # in ~/.zshrc',
    "fish": "outlast completion fish | source        # in ~/.config/fish/config.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(HOW)))
def completion_command(shell: str) -> None:
    """Print the script with which a shell completes `outlast` commands.

    \b
      eval "$(outlast completion bash)"
      eval "$(outlast completion zsh)"
      outlast completion fish | source
    """
    root = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(root.command, {}, "outlast", "_OUTLAST_COMPLETE").source())
