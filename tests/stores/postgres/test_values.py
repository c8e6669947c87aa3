"""What is stored comes back exactly, and people can read it with plain SQL."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from outlast.errors import DuplicateEvent
from outlast.model import Commit, Event, Run, Task
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres.rows import quote, unquote
from tests.stores.postgres.places import SCHEMA, ask

pytestmark = pytest.mark.server


@pytest.mark.proves("I28")
@given(text=st.text(alphabet=st.sampled_from("\x00\x1a01ab")))
def test_any_text_can_be_quoted(text: str) -> None:
    """NUL and what stands for it come back, and nothing is left that PostgreSQL refuses."""
    assert unquote(quote(text)) == text
    assert "\x00" not in quote(text)


@pytest.mark.proves("I28")
async def test_odd_texts_wherever_they_are_allowed(store: PostgresStore) -> None:
    """NUL in names of steps, workflows, attributes and events."""
    odd = "a\x00b\x1a0\x1a"
    run = Run(id="r", workflow=odd, definition=odd, queue=odd, version=odd, attributes={odd: odd})
    event = Event(type=odd, run_id="r", id=odd, step_name=odd, metadata={odd: odd})
    task = Task(run_id="r", id="t", name=odd, step=odd, metadata={odd: odd})
    await store.commit([Commit(run_id="r", create=run, events=(event,), tasks=(task,))])
    found = await store.get("r")
    assert (found.workflow, found.definition, found.queue, found.version) == (odd,) * 4
    assert found.attributes == {odd: odd}
    (recorded,) = await store.history("r")
    assert (recorded.type, recorded.id, recorded.step_name) == (odd, odd, odd)
    assert recorded.metadata == {odd: odd}
    (queued,) = await store.find_available_tasks()
    assert (queued.name, queued.step, queued.metadata) == (odd, odd, {odd: odd})
    assert await store.run_ids(workflow=odd) == ["r"]


@pytest.mark.proves("I28")
@pytest.mark.parametrize(
    "when", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
)
async def test_the_ends_of_time(store: PostgresStore, when: datetime) -> None:
    """Any time that Python knows comes back to the microsecond."""
    event = Event(type="x", run_id="r", timestamp=when)
    await store.commit([Commit(run_id="r", create=Run(id="r", created_at=when), events=(event,))])
    assert (await store.get("r")).created_at == when
    assert [one.timestamp for one in await store.history("r")] == [when]


@pytest.mark.proves("I28", "K-09")
async def test_an_event_id_longer_than_an_index_holds(store: PostgresStore) -> None:
    """It is still told from others, and found when it comes again."""
    long = "".join(chr(0x4E00 + n) for n in range(5000))
    events = [Event(type="x", run_id="r", id=id) for id in (long, long + "!")]
    assert await store.append("r", events) == 2
    with pytest.raises(DuplicateEvent) as caught:
        await store.append("r", [events[1]])
    assert (caught.value.event_id, caught.value.sequence) == (long + "!", 2)


async def test_people_can_look_with_plain_sql(store: PostgresStore) -> None:
    """The views show runs, events and tasks, whatever bytes the payloads are."""
    run = Run(id="r", workflow="order", input=Raw(b'{"a": 1}'), attributes={"tenant": "acme"})
    event = Event(type="order.placed", run_id="r", data=Raw(b"\xff\x00 no text"))
    await store.commit(
        [Commit(run_id="r", create=run, events=(event,), tasks=(Task(run_id="r", id="t"),))]
    )
    (shown,) = await ask(
        "SELECT workflow, status, created_at, (attributes::json) ->> 'tenant' AS tenant, input "
        f"FROM {SCHEMA}.show_runs WHERE id = 'r'"
    )
    assert tuple(shown) == ("order", "pending", store.clock.now(), "acme", '{"a": 1}')
    (told,) = await ask(f"SELECT sequence, type, data FROM {SCHEMA}.show_events")
    assert tuple(told) == (1, "order.placed", "\\377\\000 no text")
    (queued,) = await ask(f"SELECT queue, id, state FROM {SCHEMA}.show_tasks")
    assert tuple(queued) == ("default", "t", "waiting")
