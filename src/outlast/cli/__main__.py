"""``python -m outlast.cli``: the same as ``outlast``."""

from outlast.cli.main import main

main()
