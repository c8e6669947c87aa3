"""Writes everything that is generated from the source: `./dev docs`. With `--check`, fails if a file is out of date."""

from __future__ import annotations

import sys

from tools import seeds, sync_api


def main(argv: list[str]) -> int:
    """Run all generators; return 1 if one has found something to fix."""
    return max(sync_api.main(argv), seeds.main(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
