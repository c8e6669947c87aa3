"""A run leaves as one file, and comes back the same; a file that is not whole is refused."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from outlast.cli.export_file import Redaction, write
from outlast.cli.main import Exit
from outlast.model.commit import Commit
from outlast.model.event import Event, to_event
from outlast.model.payloads import MapCompleted, MapStarted, WorkflowStarted
from outlast.model.run import Run
from outlast.model.run_contents import Fact
from outlast.ports.custom_engine import accepted
from outlast.transfer import export_runs
from outlast.urls import resolve
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.stage import records


def test_what_comes_back_is_what_left(outlast: Invoke) -> None:
    """Record, history and children of an ended run are equal in the other store."""
    assert outlast("export", "order-lost", "-o", "lost.outlast").exit_code == 0
    done = outlast("import", "lost.outlast", "--store", "sqlite:///copy.db")
    restored = {"id": "order-lost", "runs": 2, "written": 2, "waiting": 0}
    assert records(done.stdout) == [restored]
    done = outlast("import", "lost.outlast", "--store", "sqlite:///copy.db")
    assert records(done.stdout) == [{**restored, "written": 0}]
    for run_id in ("order-lost", "order-lost~child.pack"):
        copy = outlast("show", run_id, "--history", "--store", "sqlite:///copy.db").stdout
        assert copy == outlast("show", run_id, "--history").stdout
        [mine] = records(outlast("show", run_id).stdout)
        [theirs] = records(outlast("show", run_id, "--store", "sqlite:///copy.db").stdout)
        for clock in ("updated_at", "ended_at"):
            assert mine.pop(clock) <= theirs.pop(clock)
        assert mine == theirs
    assert "0 problems" in outlast("db", "check", "--store", "sqlite:///copy.db").stderr


def test_a_run_that_had_not_ended_comes_in_paused(outlast: Invoke) -> None:
    """So that nothing is done twice; with --live it goes on as it was, with what was sent to it."""
    outlast("signal", "order-waits", "go", "--value", "1")
    outlast("export", "order-waits", "-o", "waits.outlast")
    outlast("import", "waits.outlast", "--store", "sqlite:///paused.db")
    [run] = records(outlast("show", "order-waits", "--store", "sqlite:///paused.db").stdout)
    assert run["status"] == "paused"
    outlast("import", "waits.outlast", "--store", "sqlite:///live.db", "--live")
    [run] = records(outlast("show", "order-waits", "--store", "sqlite:///live.db").stdout)
    assert run["status"] == "waiting"
    assert "1 message" in outlast("why", "order-waits", "--store", "sqlite:///live.db").stdout


def test_a_run_that_is_there_is_not_replaced(outlast: Invoke) -> None:
    """The same life again changes nothing; another life under that id is refused."""
    outlast("export", "order-done", "-o", "done.outlast")
    before = outlast("ls").stdout
    done = outlast("import", "done.outlast")
    assert [one["written"] for one in records(done.stdout)] == [0]
    assert outlast("ls").stdout == before
    outlast("rm", "order-done", "--yes")
    order = ("--input", '{"order": "again"}', "--id", "order-done")
    assert outlast("start", "checkout", "--app", "shop:app", *order).exit_code == 0
    before = outlast("ls").stdout
    done = outlast("import", "done.outlast")
    assert done.exit_code == Exit.REFUSED
    assert "exists already" in done.stderr
    assert outlast("ls").stdout == before


def test_fields_are_blotted_out(outlast: Invoke, shop: Path) -> None:
    """A redacted field is nowhere in the file, and the file can be imported."""
    outlast("export", "order-lost", "-o", "safe.outlast", "--redact", "ORDER", "--redact", "tenant")
    text = (shop / "safe.outlast").read_text()
    assert '"order":"lost"' not in text
    assert "acme" not in text
    assert '"order":"[redacted]"' in text
    assert outlast("import", "safe.outlast", "--store", "sqlite:///copy.db").exit_code == 0
    assert oct((shop / "safe.outlast").stat().st_mode)[-3:] == "600"


def spoil_end(text: bytes) -> bytes:
    """Without its last line."""
    return b"".join(text.splitlines(keepends=True)[:-1])


def forged(text: bytes, line: bytes) -> bytes:
    """With one more line, and an end that says so."""
    lines = [*text.splitlines(keepends=True)[:-1], line + b"\n"]
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    end = {"lines": len(lines), "sha256": digest}
    return b"".join(lines) + msgspec.json.encode({"end": end}) + b"\n"


SPOILT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut in a line": (lambda text: text[: len(text) // 2], "truncated"),
    "cut at a line": (spoil_end, "truncated"),
    "changed": (lambda text: text.replace(b"paid 10", b"paid 99"), "was changed"),
    "a line less": (lambda text: b"".join(text.splitlines(keepends=True)[:3] + text.splitlines(keepends=True)[4:]), "was changed"),
    "newer": (lambda text: text.replace(b'"version":1', b'"version":2', 1), "Upgrade outlast"),
    "something else": (lambda text: b'{"a": 1}\n', "not an export file"),
    "binary": (lambda text: bytes(range(256)), "not an export file"),
    "empty": (lambda text: b"", "is empty"),
    "a key that is none": (lambda text: forged(text, b'{"key":{"scope":"a"}}'), "cannot be decoded"),
    "of a kind that is none": (lambda text: forged(text, b'{"x":{}}'), "cannot be decoded"),
    "more": (lambda text: text + b"{}\n", "was changed"),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_file_is_refused(outlast: Invoke, shop: Path, how: str) -> None:
    """Cut off, changed, newer or something else: a sentence, exit code 6, nothing written."""
    outlast("export", "order-done", "-o", "good.outlast")
    spoil, told = SPOILT[how]
    (shop / "bad.outlast").write_bytes(spoil((shop / "good.outlast").read_bytes()))
    outlast("db", "upgrade", "--store", "sqlite:///copy.db")
    done = outlast("import", "bad.outlast", "--store", "sqlite:///copy.db")
    assert told in done.stderr
    assert done.exit_code == Exit.DAMAGED
    assert outlast("ls", "--store", "sqlite:///copy.db").stdout == ""


def test_facts_travel_and_are_redacted_with_their_names(outlast: Invoke, shop: Path) -> None:
    """Results of a large map are facts; blotted out, they have another hash, and are found by it."""

    async def prepare() -> Fact:
        fact = Fact.of(b'[{"card": "4711"}]')
        results = Raw(msgspec.json.encode({"~segments": [fact.hash]}))
        said = [
            WorkflowStarted(workflow_name="big", version=1),
            MapStarted(item_count=1),
            MapCompleted(results=results),
        ]
        events: list[Event] = [to_event(one, run_id="big", step_name="m") for one in said]
        commit = Commit(
            run_id="big",
            create=Run(id="big", workflow="big"),
            events=tuple(events),
            facts=(Fact.of(fact.data, "big"),),
        )
        async with resolve("sqlite:///outlast.db") as store:
            accepted((await store.commit([commit]))[0])
            runs = await export_runs(store, "big")
            with (shop / "big.outlast").open("wb") as file:
                write(file, runs, Redaction(("card",)), await store.now())
        return fact

    fact = asyncio.run(prepare())
    assert fact.hash not in (shop / "big.outlast").read_text()
    assert outlast("import", "big.outlast", "--store", "sqlite:///copy.db").exit_code == 0

    async def look() -> bytes:
        async with resolve("sqlite:///copy.db") as store:
            [event] = [one for one in await store.history("big") if one.type == "map.completed"]
            [hash] = msgspec.json.decode(event.data)["results"]["~segments"]
            return await store.load_fact(hash, root="big")

    assert asyncio.run(look()) == b'[{"card":"[redacted]"}]'


def test_a_replay_says_whether_the_code_still_fits(outlast: Invoke, shop: Path) -> None:
    """The code runs on the recorded history without effects; changed code does not fit."""
    outlast("export", "order-done", "-o", "done.outlast")
    done = outlast("replay", "done.outlast", "--app", "shop")
    assert [one["fits"] for one in records(done.stdout)] == [True, True]
    source = (shop / "shop.py").read_text()
    (shop / "changed.py").write_text(source.replace("await charge(amount)", "await ship('x')"))
    done = outlast("replay", "done.outlast", "--app", "changed")
    assert done.exit_code == Exit.RUN_FAILED
    assert "cannot be replayed with this code" in done.stderr
    done = outlast("replay", "done.outlast", "--app", "shop", "--break-at", "nothing")
    assert "no step 'nothing' in this history; there are charge" in done.stderr
