"""The parser: text to `Filter`. Errors give the position of what it cannot read.

::

    query  = all {"or" all}            all  = part {["and"] part}
    part   = "not" part | "(" query ")" | test
    test   = field comparison value {"," value}
    comparison = ":" "=" "!=" "~" "<" "<=" ">" ">="
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import NoReturn

from outlast.errors import InvalidQuery, InvalidValue
from outlast.model.run import Status
from outlast.query.filter import (
    FIELDS,
    GROUPS,
    ORDER,
    TIMES,
    Either,
    Every,
    Filter,
    Node,
    Not,
    Test,
    Word,
    length_of,
    moment_of,
)

MAX_LENGTH, MAX_DEPTH = 4_000, 50

_HALF = re.compile("[\ud800-\udfff]")  # bytes of a command line that are not UTF-8
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"""[^\s()<>=:~!,"'\\]+""")
_OP = re.compile(r"!=|<=|>=|[:=~<>]")
_BARE = re.compile(r"""[^\s(),"']+""")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"' + r"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def parse(text: str) -> Filter:
    """Parse a query; `InvalidQuery` gives the position of an error and a suggestion."""
    if len(text) > MAX_LENGTH:
        shown = f"{text[:79]}…"
        raise InvalidQuery(shown, 79, f"a query has at most {MAX_LENGTH} characters")
    if half := _HALF.search(text):
        problem = "this is half of a character (a lone surrogate), which no stored text contains"
        raise InvalidQuery(text, half.start(), problem)
    parser = _Parser(text)
    return Filter(text, parser.whole())


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        self._skip()
        if self._at == len(self._text):
            return Every(())
        node = self._either()
        if self._at < len(self._text):
            self._fail("this ')' has no matching '(': remove it, or add one before")
        return node

    def _either(self) -> Node:
        parts = [self._every()]
        while self._keyword("or"):
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _every(self) -> Node:
        parts = [self._part()]
        while self._at < len(self._text) and self._text[self._at] != ")" and not self._sees("or"):
            self._keyword("and")
            parts.append(self._part())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _part(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"a query is nested at most {MAX_DEPTH} deep")
        try:
            if self._keyword("not"):
                return Not(self._part())
            if self._at < len(self._text) and self._text[self._at] == "(":
                opened = self._at
                self._step(1)
                node = self._either()
                if self._at >= len(self._text):
                    self._fail("this '(' has no matching ')': add one", opened)
                self._step(1)
                return node
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Node:
        start = self._at
        name = _NAME.match(self._text, start)
        if name is None:
            self._fail("expected a test here, such as status:failed")
        op = _OP.match(self._text, self._past(name.end()))
        if op is None:
            self._fail(_for_bare_word(name[0]), start)
        field = self._field(name[0], start)
        self._at = op.end()
        self._skip()
        words = [self._word()]
        while self._at < len(self._text) and self._text[self._at] == ",":
            self._step(1)
            words.append(self._word())
        kind = {":": "=", "!=": "="}.get(op[0], op[0])
        tests = tuple(self._checked(field, kind, word, at, op.start()) for word, at in words)
        if len(tests) > 1 and kind not in ("=", "~"):
            self._fail(f"only one value can be compared with {op[0]}", words[1][1])
        node: Node = tests[0] if len(tests) == 1 else Either(tests)
        return Not(node) if op[0] == "!=" else node

    def _field(self, name: str, at: int) -> str:
        if name.startswith("attr."):
            if name == "attr.":
                self._fail("name the attribute: attr.NAME", at)
            return name
        field = name.lower()
        if field not in FIELDS:
            near = get_close_matches(field, FIELDS, 1)
            known = f"there are {', '.join(FIELDS)}; attributes are written attr.NAME"
            hint = f"did you mean {near[0]!r}?" if near else known
            self._fail(f"unknown field {name!r}, {hint}", at)
        return field

    def _word(self) -> tuple[Word, int]:
        at = self._at
        if quoted := _QUOTED.match(self._text, at):
            self._at = quoted.end()
            self._skip()
            inside = quoted[1] if quoted[1] is not None else quoted[2]
            return Word(re.sub(r"\\(.)", r"\1", inside, flags=re.DOTALL), True), at
        if at < len(self._text) and self._text[at] in "\"'":
            self._fail("this text has no closing quote: add one")
        bare = _BARE.match(self._text, at)
        if bare is None:
            self._fail('expected a value here; write "" for an empty one')
        self._at = bare.end()
        self._skip()
        return Word(bare[0]), at

    def _checked(self, field: str, op: str, word: Word, at: int, op_at: int) -> Test:
        """The test, if field, comparison and value fit each other."""
        if field == "status":
            self._check_status(op, word, at, op_at)
        elif field == "age":
            if op not in ORDER:
                self._fail("an age is compared with < or >, as in age>1d", op_at)
            if length_of(word.text) is None:
                self._fail(f"{word.text!r} is not a duration: use 90s, 15m, 2h, 1d, 1w", at)
        elif field in TIMES:
            if op == "~":
                self._fail(f"{field} is a time: compare it with <, > or :", op_at)
            if moment_of(word.text, _SOME_TIME) is None:
                self._fail(
                    f"{word.text!r} is not a time: use 2026-11-15, 2026-11-15T10:30, today, now-2h",
                    at,
                )
        elif op in ORDER and not field.startswith("attr."):
            self._fail(f"{field} is text: compare it with :, != or ~", op_at)
        return Test(field, op, word)

    def _check_status(self, op: str, word: Word, at: int, op_at: int) -> None:
        if op != "=":
            self._fail("a status is compared with : or !=", op_at)
        if word.text.lower() in GROUPS:
            return
        try:
            Status.parse(word.text)
        except InvalidValue:
            names = [*map(str, Status), *GROUPS]
            near = get_close_matches(word.text.lower(), names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(names)}"
            self._fail(f"{word.text!r} is not a status, {hint}", at)

    # -- characters-----------------------------------------------------------------------------

    def _past(self, at: int) -> int:
        return _SPACE.match(self._text, at).end()  # type: ignore[union-attr]

    def _skip(self) -> None:
        self._at = self._past(self._at)

    def _step(self, letters: int) -> None:
        self._at += letters
        self._skip()

    def _sees(self, keyword: str) -> bool:
        name = _NAME.match(self._text, self._at)
        if name is None or name[0].lower() != keyword:
            return False
        return _OP.match(self._text, self._past(name.end())) is None

    def _keyword(self, keyword: str) -> bool:
        if not self._sees(keyword):
            return False
        self._step(len(keyword))
        return True

    def _fail(self, problem: str, at: int | None = None) -> NoReturn:
        raise InvalidQuery(self._text, self._at if at is None else at, problem)


def _for_bare_word(word: str) -> str:
    """A suggestion for a word without a field."""
    if word.lower() in (*map(str, Status), *GROUPS):
        return f"add a field to {word!r}: status:{word.lower()}"
    return f"add a field to {word!r}: id:{word}, workflow:{word}, or error~{word}"
