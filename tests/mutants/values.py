"""Values on their way to a run, broken: what they arrive as, and whether they are checked."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

UNTYPED = "codecs/untyped.py"
CODEC = "codecs/json.py"
SENT = ("tests/unit/codecs/test_sent.py",)
VALUES = ("tests/unit/engine/test_sent_values.py",)

MUTANTS = [
    Mutant(
        "the kinds of a value without a type are not written down",
        UNTYPED,
        "        types.append([KINDS[kind], *path])\n",
        "        pass\n",
        (*SENT, *VALUES),
    ),
    Mutant(
        "a table of kinds is restored from the outside in",
        UNTYPED,
        "    for tag, *path in reversed(types):\n",
        "    for tag, *path in types:\n",
        SENT,
    ),
    Mutant(
        "the table of kinds wins over the receiver's type",
        UNTYPED,
        "    return any(leaves_open(part) for part in get_args(kind))\n",
        "    return True\n",
        SENT,
    ),
    Mutant(
        "a value without a type is not compared with what comes back",
        CODEC,
        "            if not same(data, back, self.max_depth):\n                self._refuse_change(data, back, where)\n",
        "",
        SENT,
    ),
    Mutant(
        "the members of a set are written as they lie in memory",
        UNTYPED,
        "sorted(value, key=_encode) if kind in (set, frozenset) else value",
        "value",
        SENT,
    ),
    Mutant(
        "a chain takes the table of kinds for a transform",
        "codecs/chain.py",
        "found[0] not in (JSON, TYPED)",
        "found[0] != JSON",
        (*SENT, "tests/unit/codecs/test_chain.py"),
    ),
    Mutant(
        "the answer to an update needs an annotation",
        "engine/definitions/signature.py",
        '        if self._hints["return"] is Any:\n',
        '        if self._hints["return"] is None:\n',
        VALUES,
    ),
    Mutant(
        "an attribute is stored as it was given",
        "model/validation.py",
        "        given = {name: _attribute(value) for name, value in given.items()}\n",
        "        given = dict(given)\n",
        VALUES,
    ),
]
