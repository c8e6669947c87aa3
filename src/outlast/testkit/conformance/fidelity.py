"""Fidelity: payloads are bytes. What comes back is what was given, to the last byte."""

from __future__ import annotations

import pytest
from msgspec import Raw

from outlast.errors import PayloadTooLarge, Unsupported
from outlast.model import (
    Activity,
    Change,
    Commit,
    Entry,
    Fact,
    Run,
    Snapshot,
    Start,
    Task,
)
from outlast.model.validation import MAX_PAYLOAD_BYTES
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    begin,
    deliver,
    done,
    event,
    gathered,
    signal,
    unchanged,
)

PAYLOADS = {
    "order of keys": b'{"z":1,"a":2,"m":3}',
    "a key twice": b'{"a":1,"a":2}',
    "white space": b' {\n\t"a" : [ 1 ,\r\n2 ]\n} ',
    "empty text": b'""',
    "empty object": b"{}",
    "empty array": b"[]",
    "null": b"null",
    "false": b"false",
    "zero": b"0",
    "minus zero": b"-0",
    "a float of an integer": b"1.0",
    "trailing zeros": b"2.50000",
    "an exponent": b"1E+2",
    "a small float": b"5e-324",
    "beyond a double": b"1e400",
    "a long float": b"0.1000000000000000055511151231257827",
    "beyond 53 bits": b"9007199254740993",
    "beyond 64 bits": b"18446744073709551616",
    "a thousand digits": b"1" * 1000,
    "escaped NUL": b'"a\\u0000b"',
    "escaped key": b'{"\\u0061\\/":"\\u00e9"}',
    "not ascii": '"заказ №7 – é"'.encode(),
    "emoji": '"👩‍👩‍👧🏽"'.encode(),
    "escaped surrogate pair": b'"\\ud83d\\ude00"',
    "line separators": '"\u2028\u2029\ufeff"'.encode(),
    "a statement": b'"\'; DROP TABLE runs; -- ${x} %s {0} :a ?"',
    "markup": b'"<script>alert(1)</script>"',
    "deep": b"[" * 400 + b"]" * 400,
    "a type marker": b'{"$type":"module.Class","__reduce__":["os.system"],"lc":1}',
    "100 kB": b'"' + b"x" * 100_000 + b'"',
}
FULL = Raw(b'"' + b"x" * (MAX_PAYLOAD_BYTES - 2) + b'"')
OVER = Raw(b'"' + b"x" * (MAX_PAYLOAD_BYTES - 1) + b'"')


def _parts(value: Raw) -> list[tuple[str, Capability | None, Commit]]:
    """A commit for each place where a value can be, and what it needs."""
    big = bytes(value)
    return [
        ("event data", None, Commit(run_id="r", events=(event("r", data=value),))),
        ("event output", None, Commit(run_id="r", events=(event("r", output=value),))),
        ("input", None, Commit(run_id="r", change=Change(input=value))),
        ("result", None, Commit(run_id="r", change=Change(result=value))),
        ("halt data", None, Commit(run_id="r", change=Change(halt_data=value))),
        ("ctx", None, Commit(run_id="r", change=Change(ctx={"a": value}))),
        ("created input", None, Commit(run_id="n", create=Run(id="n", input=value))),
        ("created halt data", None, Commit(run_id="n", create=Run(id="n", halt_data=value))),
        ("created error", None, Commit(run_id="n", create=Run(id="n", error=big.decode()))),
        ("error", None, Commit(run_id="r", change=Change(error=big.decode()))),
        ("created result", None, Commit(run_id="n", create=Run(id="n", result=value))),
        ("created ctx", None, Commit(run_id="n", create=Run(id="n", ctx={"a": value}))),
        ("item", Capability.INBOX, Commit(run_id="r", sends=(signal("r", data=value),))),
        (
            "child",
            Capability.CHILDREN,
            Commit(run_id="r", starts=(Start(Run(id="r~1", parent="r", input=value)),)),
        ),
        ("task", Capability.TASKS, Commit(run_id="r", tasks=(Task(run_id="r", input=value),))),
        (
            "entry",
            Capability.ENTRIES,
            Commit(run_id="r", entries=(Entry(run_id="r", step_id="s", action="a", output=value),)),
        ),
        (
            "activity",
            Capability.ACTIVITIES,
            Commit(run_id="r", activities=(Activity(id="a", run_id="r", input=value),)),
        ),
        (
            "snapshot",
            Capability.SNAPSHOTS,
            Commit(run_id="r", snapshot=Snapshot(run_id="r", sequence=0, data=big)),
        ),
        ("fact", Capability.FACTS, Commit(run_id="r", facts=(Fact.of(big),))),
    ]


class Fidelity(StoreContract):
    """Bytes in, the same bytes out."""

    @pytest.mark.proves("I28", "K-14")
    @pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
    async def test_a_payload_comes_back_byte_for_byte(self, store: Store, payload: bytes) -> None:
        """In events and in the record, whatever the database thinks of JSON."""
        raw = Raw(payload)
        await begin(
            store, "r", event("r", data=raw, output=raw), input=raw, ctx={"a": raw}, result=raw
        )
        await done(store, Commit(run_id="r", change=Change(halt_data=raw)))
        (recorded,) = await store.history("r")
        record = await store.get("r")
        assert recorded.output is not None
        assert bytes(recorded.data) == payload
        assert bytes(recorded.output) == payload
        for found in (record.input, record.result, record.halt_data, record.ctx["a"]):
            assert found is not None
            assert bytes(found) == payload

    @needs(Capability.INBOX, Capability.TASKS, Capability.ENTRIES, Capability.ACTIVITIES)
    @pytest.mark.proves("I28")
    @pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
    async def test_payloads_of_what_a_run_owns_come_back_byte_for_byte(
        self, store: Store, payload: bytes
    ) -> None:
        """In items, tasks, entries and activities too."""
        raw = Raw(payload)
        await begin(store, "r")
        commit = Commit(
            run_id="r",
            tasks=(Task(id="t", run_id="r", input=raw),),
            entries=(Entry(run_id="r", step_id="s", action="a", input=raw, output=raw),),
            activities=(Activity(id="a", run_id="r", input=raw, output=raw),),
        )
        await done(store, commit)
        await deliver(store, signal("r", data=raw))
        (item,) = await store.inbox("r")
        (task,) = await store.find_available_tasks()
        (entry,) = await store.entries("r")
        activity = await store.get_activity("a")
        found = [item.data, task.input, entry.input, entry.output, activity.input, activity.output]
        assert [value and bytes(value) for value in found] == [payload] * 6

    @pytest.mark.proves("I28")
    async def test_text_comes_back_character_for_character(self, store: Store) -> None:
        """Texts that are no payload keep NUL, line ends, and what looks empty."""
        for n, text in enumerate(["a\x00b", "a\r\nb\rc", " ", "\u200b", "👩‍👩‍👧", "'\"\\%"]):
            id = f"r{n}"
            await begin(store, id, event(id, step_name=text, metadata={"k": text}), error=text)
            (recorded,) = await store.history(id)
            assert (recorded.step_name, recorded.metadata) == (text, {"k": text})
            assert (await store.get(id)).error == text

    @pytest.mark.proves("I28")
    async def test_a_value_of_the_largest_size_comes_back(self, store: Store) -> None:
        """16 MiB are allowed, and come back."""
        await begin(store, "r", event("r", data=FULL))
        (recorded,) = await store.history("r")
        assert bytes(recorded.data) == bytes(FULL)

    @needs(Capability.SNAPSHOTS, Capability.FACTS)
    @pytest.mark.proves("I28", "R-11", "R-13")
    async def test_a_snapshot_and_a_fact_of_the_largest_size_come_back(self, store: Store) -> None:
        """16 MiB of any bytes."""
        data = bytes(range(256)) * (MAX_PAYLOAD_BYTES // 256)
        await store.save_snapshot(Snapshot(run_id="r", sequence=0, data=data))
        hash = await store.save_fact(data)
        assert (await store.load_snapshot("r")).data == data
        assert await store.load_fact(hash) == data

    @pytest.mark.proves("I28", "I12", "K-15")
    @pytest.mark.parametrize(
        ("need", "commit"),
        [pytest.param(need, commit, id=name) for name, need, commit in _parts(OVER)],
    )
    async def test_one_byte_too_many_is_refused_before_anything_is_written(
        self, store: Store, need: Capability | None, commit: Commit
    ) -> None:
        """A value over the limit is a typed error, wherever it is, also beside others."""
        declared = need is None or need in store.capabilities
        await begin(store, "r")
        await begin(store, "s")
        beside = Commit(run_id="s", events=(event("s"),))
        async with unchanged(store, "r", "s", "n", "r~1"):
            with pytest.raises(PayloadTooLarge if declared else (PayloadTooLarge, Unsupported)):
                await store.commit([beside, commit])
        assert await store.append("r", [event("r")]) == 1

    @pytest.mark.proves("I28")
    async def test_many_large_events_in_one_commit(self, store: Store) -> None:
        """The limit is that of one value, not of a commit."""
        megabyte = Raw(b'"' + b"y" * 1_000_000 + b'"')
        await begin(store, "r", *(event("r", data=megabyte) for _ in range(20)))
        found = await gathered(store.stream("r", page=5))
        assert sum(len(one.data) for one in found) == 20 * 1_000_002
