"""Every Python example in README.md and docs/ is run, so that none of them can go stale.

The blocks of one page run in their order, in one namespace, in an empty folder, and may use `await`
at the top level. A block opened by ```` ```python no-run ```` is only compiled.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^\s*(?P<mark>`{3,}|~{3,})\s*(?P<info>[^`]*)$")


class Block(NamedTuple):
    """A fenced block of code: the line of its first line, and its text."""

    line: int
    code: str
    runs: bool


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the Python blocks of a page, also indented ones, but not those quoted inside others."""
    mark, info, start, lines = "", "", 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if not mark:
            if fence:
                mark, info, start, lines = fence["mark"], fence["info"].strip(), number + 1, []
        elif fence and fence["mark"].startswith(mark) and not fence["info"].strip():
            if info in ("python", "python no-run"):
                yield Block(start, textwrap.dedent("\n".join(lines)), info == "python")
            mark = ""
        else:
            lines.append(line)


def compile_block(block: Block, page: Path) -> CodeType:
    """Compile a block so that its line numbers are those of the page."""
    source = "\n" * (block.line - 1) + block.code
    code = compile(source, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    assert isinstance(code, CodeType)
    return code


def run_page(page: Path) -> None:
    """Run a page's blocks in order; fail with the page and the line that went wrong."""
    module = module_of(page)
    sys.modules[module.__name__] = module
    try:
        with asyncio.Runner() as runner:
            for block in blocks_of(page.read_text(encoding="utf-8")):
                try:
                    code = compile_block(block, page)
                    if block.runs:
                        run_block(code, module, runner)
                except Exception as error:  # noqa: BLE001 — it is told with its place
                    place = f"{shown(page)}:{line_of(error, page) or block.line}"
                    pytest.fail(f"{place}: {''.join(traceback.format_exception(error))}")
    finally:
        del sys.modules[module.__name__]


def module_of(page: Path) -> ModuleType:
    """A real module: types in annotations are looked up there, and tracebacks read lines by its loader."""
    loader = SourceFileLoader("docs_example", str(page))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    return module_from_spec(spec)


def run_block(code: CodeType, module: ModuleType, runner: asyncio.Runner) -> None:
    """Run one block; one that awaits runs on the page's own loop, another one outside of it."""
    result = eval(code, module.__dict__)
    if code.co_flags & CO_COROUTINE:
        runner.run(result)


def line_of(error: Exception, page: Path) -> int | None:
    """Return the line of the page that an error came from, if it is known."""
    if isinstance(error, SyntaxError) and error.filename == str(page):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(page)), None)


def shown(page: Path) -> Path:
    """Return a page's path as a reader would name it."""
    return page.relative_to(ROOT) if page.is_relative_to(ROOT) else page


def pages() -> list[Path]:
    """Return every page that has a Python block."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if page.exists() and any(blocks_of(page.read_text("utf-8")))]


SERVERS = {
    "DATABASE_URL": "OUTLAST_TEST_POSTGRES",
    "REDIS_URL": "OUTLAST_TEST_REDIS",
    "SQS_ENDPOINT": "OUTLAST_TEST_SQS",
}
"""Variables that pages name their server by, and where `tools.servers` says that it is."""


def parameter(page: Path) -> ParameterSet:
    """A page, marked if it needs a server."""
    needs = any(name in page.read_text("utf-8") for name in SERVERS)
    return pytest.param(page, id=str(shown(page)), marks=[pytest.mark.server] if needs else [])


@pytest.mark.parametrize("page", [parameter(page) for page in pages()])
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's examples run as they are printed."""
    monkeypatch.chdir(tmp_path)
    for name, server in SERVERS.items():
        if name in page.read_text("utf-8"):
            url = os.environ.get(server)
            assert url, f"{server} is not set: run `./dev test`, or use `tools.servers`"
            monkeypatch.setenv(name, url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")  # what a reader has set up for all AWS tools
    run_page(page)


# -- the runner itself ----------------------------------------------------------------------------

PAGE = """
# A page

```python
import asyncio
numbers = [1]
```

- in a list:

  ```python
  await asyncio.sleep(0)
  numbers.append(2)
  ```

```python no-run
raise SystemExit
```

````markdown
```python
raise SystemExit
```
````

```sh
exit 1
```

```python
assert numbers == [1, 2]
raise KeyError("the end")
```
"""


def test_blocks_of_a_page_share_a_namespace_and_failures_name_the_line(tmp_path: Path) -> None:
    """Blocks run in order, quoted and `no-run` ones do not, and an error says where it was."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    line = PAGE.splitlines().index('raise KeyError("the end")') + 1
    with pytest.raises(pytest.fail.Exception, match=rf"page\.md:{line}: (?s:.*)KeyError"):
        run_page(page)


def test_a_block_that_is_not_run_must_still_be_python(tmp_path: Path) -> None:
    """`no-run` is for examples that need something outside, not for ones that are wrong."""
    page = tmp_path / "page.md"
    page.write_text("\n```python no-run\nx =\n```\n")
    with pytest.raises(pytest.fail.Exception, match=r"page\.md:3: (?s:.*)SyntaxError"):
        run_page(page)
