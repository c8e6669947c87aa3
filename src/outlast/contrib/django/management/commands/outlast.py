"""``manage.py outlast …``: the command `outlast`, on the database of the settings.

Commands and options are those of `outlast`; the defaults of ``--store`` and of the app are the project's.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from outlast.cli.main import cli
from outlast.contrib.django.conf import read_settings


class Command(BaseCommand):
    """Passes its arguments to `outlast`."""

    help = "Durable workflows: run a worker (`outlast worker`), inspect runs, repair them."
    requires_system_checks = ["compatibility"]

    def add_arguments(self, parser: CommandParser) -> None:
        """All arguments are passed on."""
        help = "As for the command `outlast`; try --help."
        parser.add_argument("args", nargs=argparse.REMAINDER, help=help)

    def run_from_argv(self, argv: list[str]) -> None:
        """Django's options come before the command of `outlast`; everything after belongs to `outlast`."""
        self.check(tags=self.requires_system_checks)
        sys.exit(self._hand_over(argv[2:], f"{argv[0]} {argv[1]}"))

    def handle(self, *args: Any, **_: Any) -> None:
        """For ``call_command("outlast", "ls")``: an exit code other than 0 is a `SystemExit`."""
        code = self._hand_over(list(args), "manage.py outlast")
        if code:
            raise SystemExit(code)

    def _hand_over(self, args: list[str], name: str) -> int:
        os.environ.setdefault("OUTLAST_STORE", f"django:{read_settings().database}")
        os.environ.setdefault("OUTLAST_APP", "outlast.contrib.django:app")
        try:
            cli(args, prog_name=name, standalone_mode=True)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
        return 0
