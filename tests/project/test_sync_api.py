"""tools/sync_api.py: `outlast.sync` has everything that the async API has, and nothing in it is awaited."""

from __future__ import annotations

import asyncio
import inspect
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import sync
from outlast.sync.blocking import Twin
from tools import sync_api

TWINS = {one.__name__: (one, twin) for one, twin in Twin._twins.items()}
MEMBERS = [
    (name, member)
    for name, (one, _) in sorted(TWINS.items())
    for member in sorted(vars(one))
    if not member.startswith("_") and member not in sync_api.INTERNAL.get(name, ())
]
FUNCTIONS = [
    name
    for name in outlast.__all__
    if inspect.isroutine(getattr(outlast, name))
    if getattr(outlast, name) is not getattr(sync, name, None)
]


def function_of(owner: type, name: str) -> Callable[..., Any]:
    """The function of a method or a property."""
    found: Any = inspect.getattr_static(owner, name)
    if isinstance(found, property):
        assert found.fget is not None
        return found.fget
    function: Callable[..., Any] = found
    return function


def as_text(annotation: object) -> str:
    """An annotation as a synchronous program has it: the rule of the generator, written a second time."""
    text = str(annotation)
    text = re.sub(r"\bAsync(Iterator|Iterable)\b", r"\1", text)
    text = re.sub(r"^Coroutine\[Any, Any, (.*)\]$", r"\1", text)
    return re.sub(r"\bAbstractAsyncContextManager\b", "AbstractContextManager", text)


def without_async(text: str | None) -> str:
    """A docstring without the words that its examples need in async code."""
    return re.sub(r"\b(await |async (?=with|for|def)|sync\.)", "", inspect.cleandoc(text or ""))


def assert_same_signature(one: Callable[..., Any], twin: Callable[..., Any]) -> None:
    given, found = inspect.signature(one), inspect.signature(twin)
    assert [(x.name, x.kind, x.default) for x in given.parameters.values()] == [
        (x.name, x.kind, x.default) for x in found.parameters.values()
    ]
    assert without_async(one.__doc__) == without_async(twin.__doc__)
    assert not inspect.iscoroutinefunction(twin)
    assert not inspect.isasyncgenfunction(twin)


# -- parity -----------------------------------------------------------------------------------------


def test_every_exported_name_has_a_sync_one() -> None:
    """`from outlast.sync import X` works for each X of `outlast`."""
    assert set(sync.__all__) == set(outlast.__all__) - {"sync"}
    assert {"App", "Client", "Queues", "RunHandle", "Schedules", "TransactionClient"} <= set(TWINS)


@pytest.mark.parametrize(("owner", "member"), MEMBERS)
def test_every_public_method_has_a_twin(owner: str, member: str) -> None:
    """It has the same parameters, defaults, types and docstring, and is not async."""
    one, twin = TWINS[owner]
    given, found = function_of(one, member), function_of(twin, member)
    assert_same_signature(given, found)
    assert isinstance(inspect.getattr_static(one, member), property) == isinstance(
        inspect.getattr_static(twin, member), property
    )
    expected = {key: as_text(value) for key, value in given.__annotations__.items()}
    assert {key: as_text(value) for key, value in found.__annotations__.items()} == expected


@pytest.mark.parametrize("owner", sorted(TWINS))
def test_a_twin_has_nothing_of_its_own(owner: str) -> None:
    """A method that the async API no longer has is gone; attributes of instances are properties here."""
    one, twin = TWINS[owner]
    public = {name for name in vars(twin) if not name.startswith("_")}
    attributes = {name for name in public if not hasattr(one, name)}
    made = inspect.getsource(vars(one)["__init__"])
    assert {name for name in attributes if f"self.{name}" not in made} == set()
    assert public - attributes <= set(dir(one))
    assert without_async(one.__doc__) == without_async(twin.__doc__)


@pytest.mark.parametrize("owner", ["App", "Client"])
def test_a_constructor_has_the_same_parameters(owner: str) -> None:
    """A typing error in an option is found by type checkers, and raises at once."""
    one, twin = TWINS[owner]
    assert inspect.signature(one).parameters.keys() == inspect.signature(twin).parameters.keys()
    with pytest.raises(TypeError, match="colour"):
        getattr(sync, owner)("memory:", colour="red")
    with pytest.raises(outlast.errors.InvalidValue):
        sync.App("memory:", concurrency=0)


@pytest.mark.parametrize("name", [one for one in FUNCTIONS if one != "step"])
def test_every_function_has_a_twin(name: str) -> None:
    """What a workflow awaits, a plain workflow calls: with the same parameters."""
    assert_same_signature(getattr(outlast, name), getattr(sync, name))


# -- the generator ----------------------------------------------------------------------------------


def test_the_generated_modules_are_up_to_date() -> None:
    """`./dev docs` writes them; `./dev check` fails otherwise."""
    assert sync_api.main(["--check"]) == 0


def test_a_stale_module_is_reported_and_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is changed, missing, or no longer generated."""
    folder = tmp_path / "sync"
    shutil.copytree(sync_api.TARGET, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "handle.py").write_text("# changed by hand\n")
    (folder / "queues.py").unlink()
    (folder / "former.py").write_text("# of a class that is gone\n")
    assert sync_api.main(["--check"], folder) == 1
    told = capsys.readouterr().out
    assert [line.split()[0].rpartition("/")[2] for line in told.splitlines()] == [
        "former.py", "handle.py", "queues.py",
    ]  # fmt: skip
    assert sync_api.main([], folder) == 0
    assert sync_api.main(["--check"], folder) == 0
    assert not (folder / "former.py").exists()
    assert (folder / "blocking.py").exists()


TOY = '''
class Line:
    """A line that is read."""

    def __init__(self, number: int) -> None:
        self.number = number

    async def text(self) -> str:
        """Its text: ``await line.text()``."""
        return f"line {self.number}"


class Reader:
    """Reads lines."""

    async def __aenter__(self) -> Self:
        self.is_open = True
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self.is_open = False

    def __aiter__(self) -> AsyncIterator[Line]:
        return self.lines(count=2)

    async def lines(self, *, count: int) -> AsyncIterator[Line]:
        """So many lines."""
        for number in range(count):
            yield Line(number)

    async def all(self, count: int = 2) -> dict[str, list[Line]]:
        """All lines."""
        return {"all": [Line(number) for number in range(count)]}

    @asynccontextmanager
    async def locked(self, number: int) -> AsyncIterator[Line]:
        """A line that nothing else reads."""
        self.locked_line = number
        try:
            yield Line(number)
        finally:
            self.locked_line = None

    @property
    def first(self) -> Line:
        """The first line."""
        return Line(0)
'''
IMPORTS = """
from __future__ import annotations
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self
"""


def blocking(work: Any) -> Any:
    """Run a coroutine on the loop of these tests."""
    return LOOP.run_until_complete(work)


LOOP = asyncio.new_event_loop()


@pytest.fixture
def toy() -> tuple[Any, Any]:
    """A reader, and its generated twin."""
    source = sync_api.Module("toy", IMPORTS + TOY)
    twins = sync_api.twinned_classes(source, ["Reader"])
    writer = sync_api.Writer("toy_sync", source, twins)
    for one in twins.values():
        writer.add_class(one)
    written = sync_api.formatted(writer.text("A toy."), Path("toy_sync.py"))
    namespace: dict[str, Any] = {}
    exec(IMPORTS + TOY, namespace)
    found = re.sub(
        r"^from toy import (\w+) as (\w+)$", r"\2 = toy['\1']", written, flags=re.MULTILINE
    )
    generated: dict[str, Any] = {"toy": namespace, "__name__": "toy_sync"}
    exec(found, generated)
    reader = namespace["Reader"]()
    return reader, generated["Reader"](blocking, reader)


def test_new_methods_need_no_hand_work(toy: tuple[Any, Any]) -> None:
    """Iterators, context managers, properties and classes that are returned have their twins by their annotations."""
    reader, twin = toy
    assert [line.text() for line in twin.lines(count=3)] == ["line 0", "line 1", "line 2"]
    assert [line.text() for line in twin.all()["all"]] == ["line 0", "line 1"]
    assert twin.first.text() == "line 0"
    assert twin.first.number == 0
    with twin.locked(7) as line:
        assert line.text() == "line 7"
        assert reader.locked_line == 7
    assert reader.locked_line is None
    with pytest.raises(ZeroDivisionError), twin.locked(7):
        raise ZeroDivisionError
    assert reader.locked_line is None
    with twin as entered:
        assert entered is twin
        assert reader.is_open
    assert not reader.is_open
    assert [line.text() for line in twin] == ["line 0", "line 1"]
    assert type(twin.first).text.__doc__ == "Its text: ``line.text()``."


def test_what_has_no_rule_is_an_error() -> None:
    """The generator does not write a method that would not work."""
    source = sync_api.Module(
        "toy", IMPORTS + TOY.replace("    async def all", "    @retried\n    async def all")
    )
    twins = sync_api.twinned_classes(source, ["Reader"])
    with pytest.raises(sync_api.CannotTranslate, match=r"all is decorated with \{'retried'\}"):
        sync_api.Writer("toy_sync", source, twins).add_class(twins["Reader"])
