"""Asks: the questions of all runs to people, and their answers: ``client.asks``.

Which questions are open stands in the attributes of their runs, which the store finds by an index
(`outlast.model.asks`). The answer to a question is an item in the inbox of its run, under an id that only this question
has: the store accepts the first one, without a worker, and every later one is refused with who was first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Raw

from outlast.client.backend import Backend
from outlast.client.view import shown
from outlast.codecs import JsonCodec
from outlast.codecs.schema import problem_in
from outlast.errors import (
    AlreadyAnswered,
    AskClosed,
    AskUnnamed,
    Fenced,
    InvalidValue,
    NotFound,
    RunClosed,
    Undecodable,
)
from outlast.model.asks import (
    ASKED_TO,
    ASKING,
    Answer,
    Ask,
    OpenAsk,
    ask_id,
    asks_in,
    parse_ask_id,
)
from outlast.model.event import Event, EventType, payload_of
from outlast.model.ids import check_name, new_id
from outlast.model.json import from_json, to_json
from outlast.model.payloads import HaltReassigned, HaltResumed, HaltStarted
from outlast.model.query import Order, RunQuery
from outlast.model.run import Attribute, Run
from outlast.model.run_contents import Item, ItemKind
from outlast.model.times import to_seconds
from outlast.ports.codec import Codec
from outlast.ports.store_methods import LOCK_PATIENCE_S

TRIES = 10
"""How often a run can begin another life, or reject an answer, while one is being sent."""
PAGE = 1000
List = list  # in a class that has a method `list`


class Asks:
    """The questions of a store: ``client.asks``."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def find(
        self, *, to: str | Iterable[str] | None = None, workflow: str | None = None
    ) -> AsyncIterator[Ask]:
        """The open questions, those of the oldest run first; with `to` those to a person or group, or to one of
        several."""
        backend = self._backend
        names = None if to is None else {to} if isinstance(to, str) else set(to)
        seen: set[str] = set()
        for name in [None] if names is None else sorted(names):
            attributes: dict[str, Attribute] = (
                {ASKING: True} if name is None else {f"{ASKED_TO}{check_name(name, 'name')}": True}
            )
            query = RunQuery(workflow=workflow, attributes=attributes, order=Order.OLDEST)
            async for run in backend.store.find_all(query):
                if run.status.terminal or run.id in seen:
                    continue  # it has ended just now, is being moved, or asks several of them
                seen.add(run.id)
                for ask in await open_asks(backend, run):
                    if names is None or ask.to in names:
                        yield ask

    async def list(
        self,
        *,
        to: str | Iterable[str] | None = None,
        workflow: str | None = None,
        limit: int | None = None,
    ) -> List[Ask]:
        """The open questions as `find` gives them, at most `limit`."""
        found: List[Ask] = []
        if limit is not None and limit < 1:
            raise InvalidValue(f"limit={limit}: use 1 or more, or None for all")
        async for ask in self.find(to=to, workflow=workflow):
            found.append(ask)
            if len(found) == limit:
                break
        return found

    async def get(self, id: str) -> Ask:
        """A question, open or not; `NotFound` if the run has not asked it in its present life."""
        run_id, token = parse_ask_id(id)
        run = await self._backend.record(run_id)
        found = next((ask for ask in asks_in(run.attributes) if ask.token == token), None)
        if found is not None:
            for ask in await open_asks(self._backend, run, [found], answered=True):
                return ask
        return await _past(self._backend, run, token)

    async def answer(
        self,
        id: str,
        value: Any = None,
        *,
        by: str = "",
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> None:
        """Answer a question. The value is checked against the type that the workflow asked for, or, where the code is
        not here, against its schema: `InvalidValue` says what does not fit. `AlreadyAnswered` says who was first and
        when, `AskClosed` that the run no longer asks."""
        run_id, token = parse_ask_id(id)
        run = await self._backend.record(run_id)
        await send_answer(self._backend, run, token, value, by=by, timeout=to_seconds(timeout))


async def open_asks(
    backend: Backend,
    run: Run,
    asks: Sequence[OpenAsk] | None = None,
    *,
    answered: bool = False,
) -> list[Ask]:
    """The open questions of a run as its record has them, or some of them. One whose answer waits in the inbox is not
    open any more: it is left out, or, with `answered`, shown as answered."""
    asks = asks_in(run.attributes) if asks is None else asks
    given = await _unread(backend, run) if run.inbox else {}
    found = []
    for ask in asks:
        answer = given.get(ask.token)
        if answer is not None and not answered:
            continue
        event = await _event(backend, run, ask)
        if event is not None:  # otherwise the run is another life since its record was read
            found.append(_view(backend.codec, run, event, to=ask.to, answer=answer))
    return found


async def resumed(
    backend: Backend, run: Run, value: Any, ask: str | None, *, by: str, timeout: float
) -> None:
    """Answer the question of a run that `ask` names; without a name, its only one."""
    if ask is not None:
        run_id, token = parse_ask_id(ask)
        if run_id != run.id:
            raise InvalidValue(f"the question {ask!r} is not one of run {run.id!r}")
    else:
        tokens = [one.token for one in asks_in(run.attributes)]
        given = await _unread(backend, run) if run.inbox else {}
        left = [one for one in tokens if one not in given]
        if len(left) != 1 and len(tokens) != 1:
            raise AskUnnamed(run.id, [ask_id(run.id, one) for one in left])
        token = (left or tokens)[0]
    await send_answer(backend, run, token, value, by=by, timeout=timeout)


async def send_answer(
    backend: Backend, run: Run, token: str, value: Any, *, by: str, timeout: float
) -> None:
    """Send the answer to a question of a run, if it is the first."""
    if by:
        check_name(by, "name of who answers")
    id, answer_id = ask_id(run.id, token), new_id()
    for _ in range(TRIES):
        ask = next((one for one in asks_in(run.attributes) if one.token == token), None)
        event = None if ask is None else await _event(backend, run, ask)
        if ask is None or event is None:
            await _refuse(backend, run, token, answer_id)
            return
        asked = from_json(event.data, HaltStarted, where=f"question {id!r}")
        data = _checked(backend, run, asked, value, id)
        answer = Answer(id=answer_id, ask=token, value=data, by=by)
        item = Item(
            kind=ItemKind.RESUME, name=event.step_name, id=ask.item_id, data=Raw(to_json(answer))
        )
        try:
            [receipt] = await backend.send(run.id, item, uid=run.uid, timeout=timeout)
        except (Fenced, RunClosed):  # another life, or none
            run = await backend.record(run.id)
            if run.status.terminal:
                await _refuse(backend, run, token, answer_id)
                return
            continue
        if not receipt.again:
            return
        first = (await _unread(backend, run)).get(token)
        if first is not None:
            _compare(id, answer_id, first.id, first.by, first.at)
            return
        run = await backend.record(
            run.id
        )  # the first one was recorded: as the answer, or as rejected
    await _refuse(backend, run, token, answer_id)


def _checked(backend: Backend, run: Run, asked: HaltStarted, value: Any, id: str) -> Raw:
    """The value as it is sent, if it answers the question."""
    what = f"answer to {asked.title or asked.name or id!r}"
    data = backend.codec.encode_untyped(value, where=what)
    if asked.schema is None:
        return data
    workflow = backend.workflows.get(run.workflow)
    type = None if workflow is None else workflow.asked_types.get(bytes(asked.schema))
    problem = None
    if type is not None:
        try:
            backend.codec.decode(data, type, where=what)
        except Undecodable as error:
            problem = str(error)
    else:
        plain = JsonCodec()
        content = msgspec.to_builtins(plain.decode(plain.encode_untyped(value)), enc_hook=str)
        misfit = problem_in(content, msgspec.json.decode(asked.schema))
        problem = None if misfit is None else f"{what}: {misfit}"
    if problem is not None:
        raise InvalidValue(
            f"{problem}. The question stays open: `outlast asks show {id}` shows its form"
        )
    return data


async def _refuse(backend: Backend, run: Run, token: str, answer_id: str) -> None:
    """Raise why a question cannot be answered any more, unless this answer has been the first."""
    id = ask_id(run.id, token)
    _, given = _find(await backend.store.history(run.id), token)
    if given is None:
        past = await _past(backend, run, token)
        raise AskClosed(id, past.title or past.name)
    _compare(id, answer_id, given.id, given.by, given.at)


def _compare(id: str, answer_id: str, first: str, by: str, at: datetime | None) -> None:
    # A store may be sent the same item again after a lost connection: then the first answer is this one.
    if first != answer_id:
        raise AlreadyAnswered(id, by, at)


async def _unread(backend: Backend, run: Run) -> dict[str, Answer]:
    """The answers in the inbox of a run, by question."""
    found: dict[str, Answer] = {}
    after = 0
    while True:
        items = await backend.store.inbox(run.id, after=after, limit=PAGE)
        for item in items:
            if item.kind == ItemKind.RESUME:
                answer = from_json(item.data or b"", Answer, where="an answer")
                answer = msgspec.structs.replace(answer, at=answer.at or item.sent_at)
                found.setdefault(answer.ask, answer)
        if len(items) < PAGE:
            return found
        after = items[-1].number


async def _event(backend: Backend, run: Run, ask: OpenAsk) -> Event | None:
    """The event that asks an open question."""
    events = await backend.store.history(run.id, after=ask.sequence - 1, limit=1)
    for event in events:
        if event.type == EventType.HALT_STARTED:
            asked = payload_of(event)
            if isinstance(asked, HaltStarted) and asked.id == ask.token:
                return event
    return None


async def _past(backend: Backend, run: Run, token: str) -> Ask:
    """A question that is not open any more, as the history has it."""
    history = await backend.store.history(run.id)
    event, given = _find(history, token)
    if event is None:
        raise NotFound("ask", ask_id(run.id, token))
    to = ""
    for later in history:
        if later.step_name == event.step_name and later.type == EventType.HALT_REASSIGNED:
            reassigned = payload_of(later)
            assert isinstance(reassigned, HaltReassigned)
            to = reassigned.to
    return _view(backend.codec, run, event, to=to, answer=given, closed=True)


def _find(history: Sequence[Event], token: str) -> tuple[Event | None, HaltResumed | None]:
    """The event that asks a question, and its answer."""
    asked: Event | None = None
    for event in history:
        if event.type == EventType.HALT_STARTED:
            payload = payload_of(event)
            if isinstance(payload, HaltStarted) and payload.id == token:
                asked = event
        elif asked is not None and event.step_name == asked.step_name:
            if event.type == EventType.HALT_RESUMED:
                payload = payload_of(event)
                return asked, payload if isinstance(payload, HaltResumed) else None
    return asked, None


def _view(
    codec: Codec,
    run: Run,
    event: Event,
    *,
    to: str,
    answer: Answer | HaltResumed | None = None,
    closed: bool = False,
) -> Ask:
    asked = payload_of(event)
    assert isinstance(asked, HaltStarted)
    status: Literal["open", "answered", "closed"] = "closed" if closed else "open"
    return Ask(
        id=ask_id(run.id, asked.id),
        run_id=run.id,
        workflow=run.workflow,
        name=asked.name,
        title=asked.title or asked.name,
        to=to or asked.to,
        data=shown(asked.data, codec, "data of the question"),
        schema=None if asked.schema is None else msgspec.json.decode(asked.schema),
        asked_at=event.timestamp,
        due_at=asked.due_at,
        status=status if answer is None else "answered",
        answer=None if answer is None else shown(answer.value, codec, "answer"),
        by="" if answer is None else answer.by,
        answered_at=None if answer is None else answer.at,
    )
