"""Reference pages say what the code says: errors, events, capabilities and methods are compared."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import msgspec
import pytest

from outlast import errors
from outlast.model.event import PAYLOADS, Event
from outlast.model.payloads import Payload
from outlast.model.run import Status
from outlast.ports import Capability, Durability, Queue, Store

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference"


def page(name: str) -> str:
    """The text of a reference page."""
    return (REFERENCE / name).read_text(encoding="utf-8")


def rows(text: str) -> dict[str, list[str]]:
    """The cells of all rows of all tables, by their first cell without backticks."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            first, *cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            found[re.findall(r"`([^`]+)`", first)[0]] = [cell.strip(" |") for cell in cells]
    return found


def tree_of(text: str) -> list[tuple[int, str]]:
    """The errors that a drawing names, with their depths."""
    drawn = []
    for line in text.splitlines():
        if match := re.match(r"((?:[│ ]   )*)(?:[├└]── )?([A-Z]\w+)\b", line):
            indented = "──" in line
            drawn.append((len(match[1]) // 4 + indented, match[2]))
    return drawn


@pytest.mark.proves("K-15")
def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    """Docstring and page show every error once, below the one it derives from."""
    assert errors.__doc__ is not None
    drawing = textwrap.dedent(errors.__doc__.split("::\n\n", 1)[1].split("\n\nErrors of", 1)[0])
    assert drawing in page("errors.md")

    parents: list[str] = []
    drawn: dict[str, str | None] = {}
    for depth, name in tree_of(drawing):
        del parents[depth:]
        drawn[name] = parents[-1] if parents else None
        parents.append(name)
    defined = {
        name: next(
            (base.__name__ for base in error.__bases__ if issubclass(base, errors.OutlastError)),
            None,
        )
        for name, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, errors.OutlastError)
    }
    assert drawn == defined


def test_attributes_of_errors_are_listed() -> None:
    """Each error that carries something has its attributes on the page, in their order."""
    listed = rows(page("errors.md").partition("## What they carry")[2])
    carrying = {
        name: [
            parameter for parameter in inspect.signature(error).parameters if parameter != "self"
        ]
        for name, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, errors.OutlastError) and "__init__" in vars(error)
    }
    carrying["Fenced"].remove("what")  # goes into the message alone
    assert {name: re.findall(r"`(\w+)`", cells[0]) for name, cells in listed.items()} == carrying


def fields_of(payload: type[Payload]) -> str:
    """The fields of a payload as the page shows them."""
    fields = [
        f"`{field.name}`{'' if field.required else '?'}"
        for field in msgspec.structs.fields(payload)
    ]
    return ", ".join(fields) or "nothing"


@pytest.mark.proves("K-02")
def test_every_type_of_event_is_listed_with_its_fields() -> None:
    """The page has a row per type, with the payload and its fields in their order."""
    table = rows(page("events.md").partition("## The types")[2])
    expected = {type: [f"`{one.__name__}`", fields_of(one)] for type, one in PAYLOADS.items()}
    assert {type: cells[:2] for type, cells in table.items()} == expected


@pytest.mark.proves("K-01")
def test_every_field_of_the_envelope_is_listed() -> None:
    """The page explains all fields of an event."""
    envelope = page("events.md").partition("## The types")[0]
    assert set(rows(envelope)) == set(Event.__struct_fields__)


def test_every_method_of_the_store_is_listed() -> None:
    """The page has each public method of the port, with the arguments it takes."""
    listed = {
        name: re.findall(r"(\w+)(?:=[^,]+)?(?:, |$)", arguments.replace("*, ", ""))
        for name, arguments in re.findall(r"^\| `(\w+)\(([^`]*)\)`", page("store.md"), re.MULTILINE)
    }
    assert listed == {
        name: [
            one for one in inspect.signature(method).parameters if one not in ("self", "timeout")
        ]
        for name, method in inspect.getmembers(Store, inspect.isfunction)
        if not name.startswith("_")
    }


def test_core_methods_are_marked() -> None:
    """What an adapter has to implement is what the page marks as core."""
    marked = set(re.findall(r"^\| `(\w+)\([^`]*\)` \*\*core\*\*", page("store.md"), re.MULTILINE))
    assert marked == Store.__abstractmethods__


@pytest.mark.proves("C-19")
def test_capabilities_and_durability_classes_are_listed() -> None:
    """The page has each capability and each class, and no other."""
    text = page("store.md")
    capabilities = text.partition("## Capabilities")[2].partition("## Durability")[0]
    assert set(rows(capabilities)) == {capability.value for capability in Capability}
    classes = re.findall(r"^\| D(\d) \| `(\w+)`", text, re.MULTILINE)
    assert [(int(number), name) for number, name in classes] == [
        (one.value, one.name) for one in Durability
    ]


@pytest.mark.proves("C-04")
def test_statuses_are_listed() -> None:
    """The page names the statuses in their order, and maps those of the seeds."""
    section = page("store.md").partition("## Statuses")[2]
    assert " ".join(f"`{status}`" for status in Status) in section
    assert Status.parse("Canceled") is Status.CANCELLED


def test_the_queue_howto_uses_every_method() -> None:
    """The page about queues shows each thing that a queue can do."""
    text = (REFERENCE.parent / "howto" / "use-the-queue.md").read_text(encoding="utf-8")
    methods = [
        name
        for name, _ in inspect.getmembers(Queue, inspect.isfunction)
        if not name.startswith("_") and name != "take"  # `dequeue` is made of it
    ]
    assert [name for name in methods if f"queue.{name}(" not in text] == []
