"""Finds what would tie a committed file to one machine: hosts of registries and absolute paths.

A lock file or a script that names a host breaks behind a mirror; one that names a home folder breaks
for everybody else. The files looked at are those that git has or would add.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# In pieces, so that this file passes its own check.
REGISTRIES = [
    ("py" + "pi", "org"),
    ("python" + "hosted", "org"),
    ("npm" + "js", "(org|com)"),
    ("yarn" + "pkg", "com"),
    ("(deb|security|snapshot)", "debian", "org"),
    ("crates", "io"),
]
HOSTS = "|".join(r"\b" + r"\.".join(parts) + r"\b" for parts in REGISTRIES)
HOMES = r"(?<![\w.~-])/(root|home/[\w.-]+|Users/[\w.-]+)/"


def main() -> int:
    """Print each finding as `file:line: text`; return 1 if there is one."""
    pattern = forbidden(ROOT)
    findings = [
        f"{path}:{number}: {line.strip()[:120]}"
        for path in committed_files(ROOT)
        for number, line in find(text_of(ROOT / path), pattern)
    ]
    if findings:
        print("A registry's host, or an absolute path of one machine:", *findings, sep="\n")
    return 1 if findings else 0


def forbidden(root: Path) -> re.Pattern[str]:
    """Return the pattern of what no file may hold: known hosts, home folders, and this checkout."""
    here = [re.escape(str(root))] if len(root.parts) > 2 else []
    return re.compile("|".join([HOSTS, HOMES, *here]))


def find(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line in which the pattern occurs."""
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.search(line):
            yield number, line


def text_of(path: Path) -> str:
    """Return a file's text; a binary or vanished file has none."""
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
        return ""


def committed_files(root: Path) -> list[str]:
    """Return the files that git has or would add; without git, all but those in hidden folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    if done.returncode == 0:
        return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.parts[0] not in {".git", ".cache", ".venv"})


if __name__ == "__main__":
    sys.exit(main())
