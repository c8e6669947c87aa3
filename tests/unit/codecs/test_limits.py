"""Limits and hostile text: typed errors, bounded work, and no code from data."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.codecs import JsonCodec
from outlast.errors import InvalidValue, PayloadTooDeep, PayloadTooLarge, Undecodable

codec = JsonCodec()


@dataclasses.dataclass
class Node:
    next: Node | None = None


# -- size -----------------------------------------------------------------------------------------


@pytest.mark.proves("I28", "S16")
def test_the_limit_in_bytes_is_exact() -> None:
    """A value of just that size passes, and one byte more is refused."""
    small = JsonCodec(max_bytes=10)
    assert len(bytes(small.encode("x" * 8))) == 10
    with pytest.raises(
        PayloadTooLarge, match="argument 'a': 11 bytes of JSON are more than the 10"
    ):
        small.encode("x" * 9, where="argument 'a'")


@pytest.mark.proves("I28")
def test_sixteen_mebibytes_pass_and_more_do_not() -> None:
    """The default limit, at its edge."""
    text = "x" * (16 * 1024 * 1024 - 2)
    assert codec.roundtrip(text)[1] == text
    with pytest.raises(PayloadTooLarge):
        codec.encode(text + "x")


@pytest.mark.proves("I28")
def test_what_was_stored_under_a_higher_limit_can_still_be_read() -> None:
    """Limits are for new values."""
    data = codec.encode([[[["x" * 100]]]])
    assert JsonCodec(max_bytes=1, max_depth=1).decode(data) == [[[["x" * 100]]]]


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"max_depth": 0}], ids=str)
def test_a_limit_is_at_least_one(limits: dict[str, int]) -> None:
    """Zero would refuse everything."""
    with pytest.raises(InvalidValue):
        JsonCodec(**limits)


# -- depth ----------------------------------------------------------------------------------------


DEEP: dict[str, Any] = {"list": Any, "dict": Any, "class": Node}


def nested(depth: int, kind: str) -> Any:
    value: Any = None
    for _ in range(depth):
        value = {"list": [value], "dict": {"a": value}, "class": Node(value)}[kind]
    return value


@pytest.mark.proves("S16")
@pytest.mark.parametrize("kind", DEEP)
def test_the_limit_in_depth_is_exact(kind: str) -> None:
    """As many containers inside each other as it says, and not one more; classes count."""
    assert codec.roundtrip(nested(64, kind), DEEP[kind])[1] == nested(64, kind)
    with pytest.raises(PayloadTooDeep, match="deeper than 64 levels"):
        codec.encode(nested(65, kind), DEEP[kind])


@pytest.mark.proves("S16")
@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("depth", [900, 100_000])
def test_very_deep_values_end_in_a_typed_error(kind: str, depth: int) -> None:
    """Whether or not Python's own recursion limit comes first."""
    value = nested(depth, kind)
    with pytest.raises(PayloadTooDeep):
        codec.encode(value, DEEP[kind])
    while value is not None:  # take it apart, or freeing it would be deep as well
        value = value[0] if kind == "list" else value["a"] if kind == "dict" else value.next


@pytest.mark.proves("S16")
def test_values_that_are_part_of_themselves_are_refused() -> None:
    """A circle has no end to be written."""
    in_list: list[Any] = []
    in_list.append(in_list)
    in_dict: dict[str, Any] = {}
    in_dict["a"] = [in_dict]
    node = Node()
    node.next = node
    for value, annotation in [(in_list, Any), (in_dict, Any), (node, Node), ([in_list], list)]:
        with pytest.raises(PayloadTooDeep, match="contains itself"):
            codec.encode(value, annotation)


@pytest.mark.proves("S16")
def test_a_bad_leaf_in_a_circle_does_not_loop() -> None:
    """The search for the place is bounded as well."""
    circle: list[Any] = []
    circle.append(circle)
    circle.append(object())
    with pytest.raises(PayloadTooDeep):
        codec.encode(circle)
    leaf: list[Any] = [object()]
    leaf.append(leaf)
    with pytest.raises(ValueError, match=r"\[0\]: a value of type object|contains itself"):
        codec.encode(leaf)


# -- hostile text ---------------------------------------------------------------------------------

# What a pickle that runs a command looks like; made by hand, so that nothing here imports pickle.
PICKLE = b"cos\nsystem\n(S'touch outlast-was-here'\ntR."

HOSTILE = [
    b"",
    b" ",
    b"{",
    b"[1,]",
    b'{"a":1,}',
    b"01",
    b"NaN",
    b"Infinity",
    b"-",
    b"1 2",
    b"1e999",
    b"nul",
    b"'a'",
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\\ud800"',
    b'"\\ud800\\u0041"',
    b'"\\x41"',
    b'"a\nb"',
    b"\xef\xbb\xbf1",
    b"\xff\xfe1\x00",
    b"9" * 100_000,
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 100_000,
    b'{"~json":' * 100_000,
    b'{"~json":' + b"[" * 100_000,
    PICKLE,
    b"\x80\x05\x95\x00\x00\x00\x00\x00\x00\x00\x00.",
    b"\xe3\x00\x00\x00\x00",
]


@pytest.mark.proves("S1", "S16", "S28")
@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: ascii(data[:20]))
@pytest.mark.parametrize("annotation", [Any, int, list[Any], Node, dict[str, Any]], ids=str)
def test_damaged_or_hostile_text_is_undecodable(
    data: bytes, annotation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One typed error that names the value; no error of msgspec's, and nothing is run."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Undecodable, match=r"^result of pay: "):
        codec.decode(data, annotation, where="result of pay")
    with pytest.raises(Undecodable):
        codec.decode(msgspec.Raw(data), annotation)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proves("S1", "S2", "S4")
@pytest.mark.parametrize(
    "data",
    [
        {"py/reduce": [{"py/function": "os.system"}, ["x"]]},
        {"__reduce__": ["os.system", ["x"]]},
        {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {}},
        {"exc_module": "os", "exc_type": "system", "exc_message": ["x"]},
        {"__class__": "subprocess.Popen", "args": ["x"]},
        {"type": "Cat", "$type": "os.system"},
    ],
    ids=lambda data: next(iter(data)),
)
def test_names_of_classes_in_data_are_only_text(data: dict[str, Any]) -> None:
    """Markers that other serializers act upon come back as the dict they are."""
    assert codec.decode(codec.encode(data)) == data
    assert codec.decode(msgspec.json.encode(data)) == data


@pytest.mark.proves("S28")
@pytest.mark.parametrize(
    "data, annotation, place",
    [
        (b'{"next":{"next":7}}', Node, "value → next.next: stored data does not fit"),
        (b'[1,"x"]', list[int], "value → [1]: stored data does not fit the annotation list[int]"),
        (b'{"a":"x"}', dict[str, int], "value → [...]: "),
        (b'{"x":1}', dict[int, int], "value: "),
        (b"1", str, "expected `str`, got `int`"),
        (b'"5"', int, "expected `int`, got `str`"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_the_first_place_that_does_not_fit_is_named(
    data: bytes, annotation: Any, place: str
) -> None:
    """Well-formed JSON of another shape: changed code, or changed data."""
    with pytest.raises(Undecodable) as refused:
        codec.decode(data, annotation)
    assert place in str(refused.value)


@pytest.mark.proves("S28")
def test_a_flipped_bit_never_gives_an_untyped_error() -> None:
    """It is found, or it gives another value of the annotated type; it never runs wild."""
    data = bytes(codec.encode(Node(Node(Node())), Node))
    for position in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        with contextlib.suppress(Undecodable):
            assert isinstance(codec.decode(bytes(flipped), Node), Node)
