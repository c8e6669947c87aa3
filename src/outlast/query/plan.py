"""Plan: the index searches that find all runs a filter matches.

The stores' indexes cover workflow, status, parent and equal attributes (`RunQuery`), sorted by creation
time. All runs together are also sorted by their last change. A plan is a few such searches between two
moments of the sort order. Together they find all matches, and possibly more.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from outlast.model.query import Order, RunQuery
from outlast.model.run import Attribute, Status
from outlast.query.filter import Either, Every, Filter, Node, Not, Test, attributes_like

MAX_SEARCHES = 16
CREATED, UPDATED = ("created", "age"), ("updated",)
EVERYTHING = RunQuery()
Span = tuple[datetime | None, datetime | None]


class Plan(NamedTuple):
    """Searches that together find all matches that were created, or last changed, since `since` and before
    `until`. With `exact` they find nothing else."""

    order: Order
    searches: tuple[RunQuery, ...]
    since: datetime | None
    until: datetime | None
    exact: bool


def plan(filter: Filter, now: datetime, order: Order = Order.NEWEST) -> Plan:
    """The plan for a filter, at a time."""
    node = _pushed(filter.node, negated=False)
    fields = UPDATED if order.by_change else CREATED
    since, until = _span(node, now, fields)
    if order is not Order.NEWEST:
        search = RunQuery(order=order)
        return Plan(order, (search,), since, until, set(_fields(node)) <= set(fields))
    searches = _searches(node)
    if any(search == EVERYTHING for search in searches):
        searches = [EVERYTHING]
    # By their repr: 5 == 5.0, but an index holds them as different values.
    distinct = {repr(search): search for search in searches}
    return Plan(order, tuple(distinct.values()), since, until, _is_exact(node))


def best_order(filter: Filter, now: datetime) -> Order:
    """The sort order that reads the fewest rows: by last change, if the filter limits only that."""
    by_creation = plan(filter, now)
    if by_creation.searches != (EVERYTHING,) or (by_creation.since, by_creation.until) != (
        None,
        None,
    ):
        return Order.NEWEST
    by_change = plan(filter, now, Order.LATEST)
    is_bounded = (by_change.since, by_change.until) != (None, None)
    return Order.LATEST if is_bounded else Order.NEWEST


def is_counted(filter: Filter) -> bool:
    """Whether a filter uses only status and workflow, which the store counts."""
    return set(_fields(filter.node)) <= {"status", "workflow"}


def _pushed(node: Node, *, negated: bool) -> Node:
    """The same tree with negations moved down to the tests."""
    match node:
        case Not(part):
            return _pushed(part, negated=not negated)
        case Every(parts) | Either(parts):
            every = isinstance(node, Every) is not negated
            pushed = tuple(_pushed(part, negated=negated) for part in parts)
            return Every(pushed) if every else Either(pushed)
        case _:
            return Not(node) if negated else node


def _searches(node: Node) -> list[RunQuery]:
    match node:
        case Either(parts):
            found = [search for part in parts for search in _searches(part)]
            return found if len(found) <= MAX_SEARCHES else [EVERYTHING]
        case Every(parts):
            found = [EVERYTHING]
            for part in parts:
                others = _searches(part)
                both = [_both(one, other) for one in found for other in others]
                merged = [search for search in both if search is not None]
                # More searches than pay: keep to those that there were, which find all as well.
                found = merged if len(merged) <= MAX_SEARCHES else found
            return found
        case Not(Test(field="status") as test):
            left = frozenset(Status) - test.statuses
            return [RunQuery(status=left)] if left else []
        case Test():
            return _of_test(node)
        case _:
            return [EVERYTHING]


def _of_test(test: Test) -> list[RunQuery]:
    text = test.word.text
    if test.field == "status":
        return [RunQuery(status=test.statuses)]
    if test.op != "=" or test.is_pattern:
        return [EVERYTHING]
    if test.field == "workflow":
        return [RunQuery(workflow=text)]
    if test.field == "parent" and text:
        return [RunQuery(parent=text)]
    if test.attribute is not None:
        likes: list[Attribute] = [text] if test.word.quoted else attributes_like(text)
        return [RunQuery(attributes={test.attribute: like}) for like in likes]
    return [EVERYTHING]


def _both(one: RunQuery, other: RunQuery) -> RunQuery | None:
    """The intersection of two searches; None if it is empty."""
    status = one.status & other.status if one.status and other.status else one.status | other.status
    if one.status and other.status and not status:
        return None
    if None not in (one.workflow, other.workflow) and one.workflow != other.workflow:
        return None
    if None not in (one.parent, other.parent) and one.parent != other.parent:
        return None
    for name in one.attributes.keys() & other.attributes.keys():
        mine, others = one.attributes[name], other.attributes[name]
        if type(mine) is not type(others) or mine != others:
            return None
    return RunQuery(
        workflow=one.workflow if one.workflow is not None else other.workflow,
        parent=one.parent if one.parent is not None else other.parent,
        status=status,
        attributes={**one.attributes, **other.attributes},
    )


def _span(node: Node, now: datetime, fields: tuple[str, ...]) -> Span:
    """The time span in which all matches were created, or last changed."""
    match node:
        case Test() if node.field in fields:
            return node.span(now)
        case Every(parts):
            spans = [_span(part, now, fields) for part in parts]
            since = max((since for since, _ in spans if since is not None), default=None)
            until = min((until for _, until in spans if until is not None), default=None)
            return since, until
        case Either(parts) if parts:
            spans = [_span(part, now, fields) for part in parts]
            starts = [since for since, _ in spans if since is not None]
            ends = [until for _, until in spans if until is not None]
            return (
                min(starts) if len(starts) == len(spans) else None,
                max(ends) if len(ends) == len(spans) else None,
            )
        case _:
            return None, None


def _is_exact(node: Node) -> bool:
    match node:
        case Every(parts) | Either(parts):
            return all(_is_exact(part) for part in parts)
        case Not(Test(field="status")):
            return True
        case Test():
            return _of_test(node) != [EVERYTHING] or node.field in ("created", "age")
        case _:
            return False


def _fields(node: Node) -> list[str]:
    match node:
        case Every(parts) | Either(parts):
            return [field for part in parts for field in _fields(part)]
        case Not(part):
            return _fields(part)
        case Test(field=field):
            return [field]
        case _:
            return []
