"""Who is served: the pure function that every store asks, and every store against the simplest one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import UsageError
from outlast.model.queue_policy import (
    FairKey,
    QueuePolicy,
    Rate,
    allocate,
    check_policy,
    scope_of,
    urgency,
)

KEYS = st.sampled_from(["", "a", "b", "c", "d"])
LINES = st.dictionaries(
    KEYS,
    st.tuples(st.integers(0, 5_000_000), st.integers(0, 30), st.integers(0, 5), st.integers(0, 5)),
    max_size=5,
)
LIMITS = st.none() | st.integers(1, 8)
POLICIES = st.builds(
    QueuePolicy,
    queue=st.just("q"),
    concurrency=LIMITS,
    key_concurrency=LIMITS,
    rate=st.none() | st.builds(Rate, st.integers(1, 8), st.just(60.0)),
    key_rate=st.none() | st.builds(Rate, st.integers(1, 8), st.just(60.0)),
    weights=st.dictionaries(KEYS.filter(bool), st.sampled_from([0.5, 1.0, 3.0])),
    paused=st.booleans(),
)


def fair_keys_of(given: dict[str, tuple[int, int, int, int]]) -> list[FairKey]:
    return [
        FairKey(key=key, pass_value=pass_value, ready=ready, in_flight=in_flight, started=started)
        for key, (pass_value, ready, in_flight, started) in given.items()
    ]


@pytest.mark.proves("I22")
@given(
    POLICIES,
    LINES,
    st.integers(0, 40),
    st.integers(0, 10),
    st.integers(0, 10),
    st.integers(0, 5_000_000),
)
def test_no_limit_is_exceeded_and_nothing_is_left_lying(
    policy: QueuePolicy, found: dict[str, tuple[int, int, int, int]], room: int, in_flight: int, started: int,
    global_pass: int,
) -> None:  # fmt: skip
    """Whatever waits, no rule is broken; and what is not handed out, a rule or the room forbids."""
    fair_keys = fair_keys_of(found)
    shares = allocate(
        policy, fair_keys, room, global_pass=global_pass, in_flight=in_flight, started=started
    )
    total = sum(shares.given.values())
    assert total <= room
    left = room - total
    if policy.paused:
        assert total == 0
        return
    if policy.concurrency is not None:
        assert total == 0 or total <= policy.concurrency - in_flight
        left = min(left, policy.concurrency - in_flight - total)
    if policy.rate is not None:
        assert total == 0 or total <= policy.rate.limit - started
        left = min(left, policy.rate.limit - started - total)
    for fair_key in fair_keys:
        count = shares.given.get(fair_key.key, 0)
        allowed = fair_key.ready
        if fair_key.key and policy.key_concurrency is not None:
            allowed = min(allowed, policy.key_concurrency - fair_key.in_flight)
        if fair_key.key and policy.key_rate is not None:
            allowed = min(allowed, policy.key_rate.limit - fair_key.started)
        assert count <= max(allowed, 0)
        assert left <= 0 or count == max(allowed, 0)


@given(st.dictionaries(KEYS.filter(bool), st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=2))
def test_shares_over_a_window_are_the_weights(weights: dict[str, float]) -> None:
    """Where everybody has enough, what each gets differs from its share by one turn at most."""
    policy = QueuePolicy(queue="q", weights=weights)
    fair_keys = [FairKey(key=key, pass_value=0, ready=10_000) for key in weights]
    global_pass, got = 0, Counter[str]()
    for _ in range(50):
        shares = allocate(policy, fair_keys, 7, global_pass=global_pass)
        global_pass = shares.global_pass
        got.update(shares.given)
    whole = sum(weights.values())
    for key, weight in weights.items():
        assert abs(got[key] - 350 * weight / whole) <= 1 + max(weights.values()) / min(
            weights.values()
        )


@given(LINES, st.integers(0, 5_000_000), st.integers(1, 20))
def test_a_newcomer_waits_for_one_round(
    found: dict[str, tuple[int, int, int, int]], global_pass: int, room: int
) -> None:
    """Whoever comes when others have waited long is served before anybody is served twice."""
    fair_keys = [*fair_keys_of(found), FairKey(key="new", pass_value=0, ready=1)]
    shares = allocate(
        QueuePolicy(queue="q"), fair_keys, len(fair_keys) + room, global_pass=global_pass
    )
    assert shares.given["new"] == 1
    first = allocate(
        QueuePolicy(queue="q"),
        [*fair_keys_of(found), FairKey(key="new", pass_value=0, ready=1)],
        len(fair_keys),
        global_pass=global_pass,
    )
    assert first.given.get("new") == 1 or max(first.given.values()) == 1


@given(
    st.floats(1, 1000),
    st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 10**10)), min_size=2, max_size=2),
    st.integers(0, 10**9),
)
def test_ageing_keeps_its_order(ageing: float, tasks: list[tuple[int, int]], later: int) -> None:
    """Who waits longer overtakes who is more urgent, exactly when a level's worth has pass_value."""
    policy = QueuePolicy(queue="q", ageing=ageing)
    (priority, ready), (other, since) = tasks
    if priority < other:
        worth = (other - priority) * ageing * 1_000_000
        first = urgency(policy, priority, ready) <= urgency(policy, other, since)
        assert first == (ready - since <= worth) or abs(ready - since - worth) < 1
    assert urgency(policy, priority, ready) < urgency(policy, priority, ready + 1 + later)


@given(st.integers(-3, 0), st.sampled_from(["concurrency", "key_concurrency"]))
def test_a_limit_of_nothing_is_refused(limit: int, name: str) -> None:
    """Zero or below is no limit: the message says what to write instead."""
    with pytest.raises(UsageError, match="paused=True"):
        check_policy(QueuePolicy(queue="q", **{name: limit}))  # type: ignore[arg-type]


def test_scopes() -> None:
    """The rules of a queue hold for its steps and for nobody else's."""
    assert [scope_of(name) for name in ("gpu", "gpu/render", "gpu-2/render", "gpu/a/b")] == [
        "gpu",
        "gpu",
        "gpu-2",
        "gpu",
    ]
