"""Steps in processes of their own that stand in the main program, or nowhere that a process could find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import outlast
from outlast.errors import WorkflowMisuse

PROGRAM = """
import asyncio, os, sys
from pathlib import Path
import outlast

@outlast.step(process=True)
def where_am_i(name: str) -> list[str]:
    return [str(os.getpid()), name, __name__]

@outlast.workflow
async def asks(name: str) -> list[str]:
    return await where_am_i(name)

async def main() -> None:
    async with outlast.App("memory:", workflows=[asks]) as app:
        pid, name, module = await (await app.start(asks("ann"))).result()
        print(int(pid) != os.getpid(), name, module)
"""
GUARDED = PROGRAM + 'if __name__ == "__main__":\n    asyncio.run(main())\n'
UNGUARDED = PROGRAM + "asyncio.run(main())\n"


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program of a user's."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("how", [("shop.py",), ("-m", "shop"), (".",)], ids=" ".join)
def test_a_step_of_the_main_program_runs_in_a_process(tmp_path: Path, how: tuple[str, ...]) -> None:
    """The script is loaded there under another name, so that it does not begin anew."""
    for name in ("shop.py", "__main__.py"):
        (tmp_path / name).write_text(GUARDED)
    done = run(*how, folder=tmp_path)
    assert done.stderr == ""
    assert done.stdout == f"True ann {'shop' if '-m' in how else '__mp_main__'}\n"


@pytest.mark.parametrize("how", [("shop.py",), ("-m", "shop")], ids=" ".join)
def test_a_program_that_would_begin_anew_is_told_what_to_write(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    """It is not begun in the process of its step, and so on without an end."""
    (tmp_path / "shop.py").write_text(UNGUARDED)
    done = run(*how, folder=tmp_path)
    assert done.returncode == 1
    assert 'put what begins it under `if __name__ == "__main__":`' in done.stderr


def test_a_step_that_no_process_could_find_is_refused_where_it_is_declared(tmp_path: Path) -> None:
    """In a function, as a lambda, on the command line: nothing has been written then."""

    def inner() -> None: ...

    for function in (inner, lambda: None):
        with pytest.raises(WorkflowMisuse, match="at the top of a module"):
            outlast.step(process=True, name="inner")(function)
    done = run("-c", GUARDED, folder=tmp_path)
    assert "WorkflowMisuse: step 'where_am_i'" in done.stderr
    assert done.stdout == ""
