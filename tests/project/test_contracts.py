"""tools/seeds.py: the table of contracts and proofs, made from the markers of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import seeds
from tools.seeds import Contract, Family, Proof

CONTRACTS = """
[[family]]
title = "K: events (Skene)"
intro = "About events."
contracts = [
    ["K-01", "the fields of an event", "`Event`"],
    ["K-08", "no gaps", "`Conflict`"],
]
"""
FAMILIES = seeds.read_families(CONTRACTS)

TESTS = """
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.proves("I1")]
CASES = pytest.mark.parametrize("case", [pytest.param(1, marks=pytest.mark.proves("I2"))])
EXAMPLES: list[tuple[str, int]] = [("K-20", 1), ("K-20", 2), ("K-21", 3)]


@pytest.mark.proves("K-01", "K-08")
@pytest.mark.timeout(1)
def test_plain(): ...


class TestAll:
    @pytest.mark.proves("M-01")
    async def test_method(self): ...

    @CASES
    def test_named(self, case): ...

    @pytest.mark.parametrize(
        "number",
        [pytest.param(n, marks=pytest.mark.proves(id)) for id, n in EXAMPLES],
    )
    def test_iterated(self, number): ...


@pytest.mark.proves("S-22")
class TestMarked:
    def test_unmarked(self): ...
"""


def proofs_in(folder: Path, text: str) -> tuple[list[tuple[str, str]], list[str]]:
    """The markers of a module with this text, and what is wrong with them."""
    (folder / "tests").mkdir()
    (folder / "tests" / "test_it.py").write_text(text)
    proofs, problems = seeds.read_proofs(folder, ["tests"])
    return [(proof.contract, proof.test) for proof in proofs], problems


def test_markers_are_found_wherever_pytest_would(tmp_path: Path) -> None:
    """On tests, classes and modules, in parameters, and in what a decorator refers to."""
    proofs, problems = proofs_in(tmp_path, TESTS)
    assert problems == []
    assert proofs == [
        ("I1", ""),
        ("K-01", "::test_plain"),
        ("K-08", "::test_plain"),
        ("M-01", "::TestAll::test_method"),
        ("I2", "::TestAll::test_named"),
        ("K-20", "::TestAll::test_iterated"),
        ("K-21", "::TestAll::test_iterated"),
        ("S-22", "::TestMarked"),
    ]


@pytest.mark.parametrize("argument", ["NAME", "f'K-{n}'", "*IDS", "('K-01', 'K-08')"])
def test_ids_have_to_be_readable(tmp_path: Path, argument: str) -> None:
    """An id that only running the test would give is a problem, with its place."""
    text = f"import pytest\n\n@pytest.mark.proves({argument})\ndef test_it(): ...\n"
    proofs, problems = proofs_in(tmp_path, text)
    assert proofs == []
    assert len(problems) == 1
    assert problems[0].startswith("tests/test_it.py:3: ")


@pytest.mark.parametrize("id", ["K-99", "K-1", "k-01", "K-01..K-08", "K-01-K-08", "K-01, K-08", ""])
def test_unknown_ids_and_ranges_are_refused(id: str) -> None:
    """Contracts are named one by one, exactly as the list has them."""
    proof = Proof(id, "tests/test_it.py", 7, "::test_it")
    [problem] = seeds.unknown([proof], FAMILIES)
    assert problem.startswith(f"tests/test_it.py:7: {id!r} is no contract")
    assert seeds.unknown([proof._replace(contract="K-08")], FAMILIES) == []


def test_the_page_shows_what_is_proven_and_what_is_open() -> None:
    """Each contract links to its tests, or says that it is open."""
    proofs = [
        Proof("K-08", "tests/test_b.py", 1, "::test_b"),
        Proof("K-08", "tests/test_a.py", 9, "::TestA::test_2"),
        Proof("K-08", "tests/test_a.py", 5, "::TestA::test_1"),
    ]
    page = seeds.render_proofs(FAMILIES, proofs)
    assert "| [K: events (Skene)](#k-events-skene) | 2 | 1 | 1 |" in page
    assert "| K-01 | the fields of an event | **open** |" in page
    assert (
        "| K-08 | no gaps | [tests/test_a.py](../../tests/test_a.py)"
        "<br>`::TestA::test_1`<br>`::TestA::test_2`"
        "<br>[tests/test_b.py](../../tests/test_b.py)<br>`::test_b` |"
    ) in page
    assert page == seeds.render_proofs(FAMILIES, proofs[::-1])


def test_a_page_explains_each_id() -> None:
    """Each contract has one line, with its name in outlast."""
    page = seeds.render_ids(FAMILIES)
    assert "## K: events (Skene)\n\nAbout events.\n" in page
    assert "| K-01 | the fields of an event | `Event` |\n| K-08 | no gaps | `Conflict` |" in page


def test_a_contract_stands_once() -> None:
    """Two rows with one id are a mistake of the list."""
    with pytest.raises(ValueError, match="K-01"):
        seeds.read_families(CONTRACTS.replace("K-08", "K-01"))
    assert [Family("K: events (Skene)", "About events.", FAMILIES[0].contracts)] == FAMILIES
    assert FAMILIES[0].contracts[1] == Contract("K-08", "no gaps", "`Conflict`")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two contracts and one test."""
    (tmp_path / "tools").mkdir()
    (tmp_path / seeds.CONTRACTS).write_text(CONTRACTS)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(
        'import pytest\n\n@pytest.mark.proves("K-01")\ndef test_it(): ...\n'
    )
    return tmp_path


@pytest.mark.parametrize("name", [seeds.IDS_PAGE, seeds.PROOFS_PAGE])
def test_check_fails_until_a_page_is_written(
    project: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """`--check` writes nothing and notices a page that is missing or out of date."""
    page = project / name
    assert seeds.main(["--check"], project) == 1
    assert not page.exists()
    assert seeds.main([], project) == 0
    assert seeds.main(["--check"], project) == 0
    page.write_text(page.read_text() + "\n")
    assert seeds.main(["--check"], project) == 1
    assert f"{name} is out of date: run ./dev docs" in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--check"]], ids=["write", "check"])
def test_an_unknown_id_fails_and_nothing_is_written(
    project: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A marker that names no contract is told with its place."""
    test = project / "tests" / "test_it.py"
    test.write_text(test.read_text().replace("K-01", "K-01..K-08"))
    assert seeds.main(options, project) == 1
    assert "tests/test_it.py:3: 'K-01..K-08' is no contract" in capsys.readouterr().out
    assert not (project / seeds.PROOFS_PAGE).exists()


def listed() -> list[Family]:
    """The contracts of this project."""
    return seeds.read_families((seeds.ROOT / seeds.CONTRACTS).read_text(encoding="utf-8"))


def test_the_list_is_complete() -> None:
    """Every contract of the five seeds, every decision, invariant and attack is listed, in order."""
    expected = [
        [f"M-{n:02}" for n in range(1, 46)],
        [f"D-{n:02}" for n in range(1, 42)],
        [f"R-{n:02}" for n in range(1, 23)],
        [f"S-{n:02}" for n in range(1, 26)],
        [f"K-{n:02}" for n in (*range(1, 18), *range(20, 41))],
        [f"C-{n:02}" for n in range(1, 29)],
        [f"I{n}" for n in range(1, 33)],
        [f"S{n}" for n in range(1, 31)],
    ]
    assert [[contract.id for contract in family.contracts] for family in listed()] == expected


def test_every_marker_of_this_project_names_a_contract() -> None:
    """What the tests claim to prove are contracts that are listed."""
    proofs, problems = seeds.read_proofs(seeds.ROOT, seeds.SOURCES)
    assert problems + seeds.unknown(proofs, listed()) == []
    assert proofs
