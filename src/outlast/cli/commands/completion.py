"""`outlast completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

HOW = {
    "bash": 'eval "$(outlast completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(outlast completion zsh)"        # in ~/.zshrc',
    "fish": "outlast completion fish | source        # in ~/.config/fish/config.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(HOW)))
def completion_command(shell: str) -> None:
    """Print the script that lets a shell complete `outlast` commands.

    \b
      eval "$(outlast completion bash)"
      eval "$(outlast completion zsh)"
      outlast completion fish | source
    """
    root = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(root.command, {}, "outlast", "_OUTLAST_COMPLETE").source())
