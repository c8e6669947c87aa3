"""Ids: ours only grow, over threads and forks; yours are checked by one function."""

from __future__ import annotations

import os
import threading
import time
import uuid
import warnings
from contextlib import suppress
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import InvalidId
from outlast.model import ids, new_id
from outlast.model.ids import check_id, check_name, partition_of, root_of, seeded


@pytest.mark.proves("K-01")
def test_our_ids_are_uuids_of_version_7() -> None:
    """Version and variant are where RFC 9562 wants them, and the time is in front."""
    made = uuid.UUID(new_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert abs((made.int >> 80) / 1000 - time.time()) < 60


@pytest.mark.proves("K-01", "I27")
def test_our_ids_only_grow() -> None:
    """Each is greater than the one before, as text too."""
    ids = [new_id() for _ in range(20_000)]
    assert ids == sorted(set(ids))


@pytest.mark.proves("K-01", "I27")
def test_our_ids_grow_while_the_clock_stands_still() -> None:
    """More than one millisecond has room for, and the same again for the same seed."""
    for seed in range(8):
        made = []
        for _ in range(2):
            with seeded(seed):
                made.append([new_id() for _ in range(70_000)])
        assert made[0] == made[1] == sorted(set(made[0]))


@pytest.mark.proves("K-01", "I27")
def test_our_ids_grow_although_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its times are used again when they are new."""
    before = [new_id() for _ in range(100)]
    past, future = time.time_ns() - 3_600 * 10**9, time.time_ns() + 3_600 * 10**9
    times = cycle([past, future, past, past + 10**6])
    monkeypatch.setattr(ids, "_time_ns", lambda: next(times))
    made = before + [new_id() for _ in range(1_000)]
    assert made == sorted(set(made))


@pytest.mark.proves("K-01", "I27")
def test_our_ids_grow_over_threads() -> None:
    """Threads never get the same id, and each sees its own grow."""
    made: list[list[str]] = [[] for _ in range(8)]

    def make(own: list[str]) -> None:
        own.extend(new_id() for _ in range(2_000))

    threads = [threading.Thread(target=make, args=(own,)) for own in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everyone = [id for own in made for id in own]
    assert len(set(everyone)) == 16_000
    assert all(own == sorted(own) for own in made)


@pytest.mark.proves("I27", "S14")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_our_ids_differ_after_a_fork() -> None:
    """A child process does not repeat its parent's ids."""
    new_id()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # From 3.12 on Python warns where there are threads; the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.write(writer, "".join(new_id() for _ in range(50)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    theirs = {text[n : n + 36] for n in range(0, len(text), 36)}
    assert len(theirs) == 50
    assert not theirs & {new_id() for _ in range(50)}


GOOD = ["a", "order-17", "заказ", " ", "a/b.c_d", "👩‍👧", "x" * 255, "é" * 127]
BAD = [
    "",
    "a:b",
    "{a}",
    "a~b",
    "~",
    "a\n",
    "\x00",
    "a\x7f",
    "a\x9f",
    "\ud800",
    "x" * 256,
    "é" * 128,
]


@pytest.mark.proves("I27", "R-06")
@pytest.mark.parametrize("id", GOOD)
def test_what_may_be_an_id(id: str) -> None:
    """It comes back unchanged."""
    assert check_id(id) == id


@pytest.mark.proves("I27", "K-15")
@pytest.mark.parametrize("id", [*BAD, None, 7, b"a"])
def test_what_may_not_be_an_id(id: object) -> None:
    """The error says what the id is for."""
    with pytest.raises(InvalidId, match="run id"):
        check_id(id)


@pytest.mark.proves("I27", "I21")
@pytest.mark.parametrize("id", ["a~b", "a~b~c", "x" * 1024])
def test_what_may_be_the_id_of_a_child(id: str) -> None:
    """Parts between separators, up to 1,024 bytes."""
    assert check_id(id, child=True) == id


@pytest.mark.proves("I27", "I21")
@pytest.mark.parametrize("id", ["~a", "a~", "a~~b", "~", "x" * 1025, "a~b:c"])
def test_what_may_not_be_the_id_of_a_child(id: str) -> None:
    """No empty part, and no character that a root id may not have."""
    with pytest.raises(InvalidId):
        check_id(id, child=True)


@pytest.mark.proves("I27", "S14")
@pytest.mark.parametrize("name", ["a:b", "{}", "a~b", "step (1)", "ключ", "x" * 1024])
def test_a_name_may_be_more_than_an_id(name: str) -> None:
    """Names inside a run are no part of a key of their own."""
    assert check_name(name, "step") == name


@pytest.mark.proves("I27", "K-15")
@pytest.mark.parametrize("name", ["", "a\nb", "\x00", "\x85", "\ud800", "x" * 1025, None, 7])
def test_what_may_not_be_a_name(name: object) -> None:
    """The error says what the name is for."""
    with pytest.raises(InvalidId, match="step"):
        check_name(name, "step")


@pytest.mark.proves("I27", "I21")
@given(st.lists(st.text("ab~", min_size=1), min_size=1), st.integers(1, 1024))
def test_a_tree_lives_in_one_partition(parts: list[str], partitions: int) -> None:
    """A child is where its root is, and every id has a place."""
    root = parts[0].replace("~", "") or "r"
    child = "~".join([root, *parts])
    assert root_of(child) == root
    assert partition_of(child, partitions) == partition_of(root, partitions)
    assert 0 <= partition_of(child, partitions) < partitions


@pytest.mark.proves("I27", "K-15")
@given(st.text(), st.booleans())
def test_any_text_is_an_id_or_refused(text: str, child: bool) -> None:
    """Nothing else happens, and what passes can be stored as UTF-8."""
    with suppress(InvalidId):
        assert check_id(text, child=child) == text
        assert 1 <= len(text.encode()) <= 1024
