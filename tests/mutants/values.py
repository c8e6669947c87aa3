"""Values on their way to a run, broken: what they arrive as, and whether they are checked."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

UNTYPED = "codecs/untyped.py"
CODEC = "codecs/json.py"
SENT = ("tests/unit/codecs/test_sent.py",)
REJECTED = ("tests/unit/engine/test_rejected_messages.py",)
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
        "a signal that does not fit is delivered",
        "engine/runner/inbox_reader.py",
        "    problem = wait.problem_of(item.data)\n",
        "    problem = None\n",
        REJECTED,
    ),
    Mutant(
        "a rejected message is not shown",
        "query/outline.py",
        '            part.rejected.append(f"{kind} rejected: {error}")\n',
        "            pass\n",
        REJECTED,
    ),
    Mutant(
        "a declared signal is sent unchecked",
        "client/backend.py",
        "            return message.name, self.codec.encode(value, message.type, where=where)\n",
        "            return message.name, self.codec.encode_untyped(value, where=where)\n",
        REJECTED,
    ),
    Mutant(
        "a signal that lies unread is not named",
        "query/why.py",
        "    unread = [name for name in signals if name not in waited]\n",
        "    unread: list[str] = []\n",
        REJECTED,
    ),
    Mutant(
        "a replay does not compare arguments",
        "engine/operations/step.py",
        "                        self._execution.on_changed_call(event)\n",
        "                        pass\n",
        ("tests/unit/engine/test_changed_arguments.py",),
    ),
    Mutant(
        "a replay compares arguments as text",
        "engine/operations/step.py",
        " and not self.is_call_with(asked):\n",
        ":\n",
        ("tests/unit/engine/test_changed_arguments.py",),
    ),
    Mutant(
        "an attribute is stored as it was given",
        "model/validation.py",
        "        given = {name: _attribute(value) for name, value in given.items()}\n",
        "        given = dict(given)\n",
        VALUES,
    ),
]
