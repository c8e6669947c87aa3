"""The API that users import, broken: which module a name says, what an import loads, unused calls."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

NAMES = "tests/project/test_public_names.py"

MUTANTS = [
    Mutant(
        "exported names say the file that defines them",
        "_public.py",
        "    thing.__module__ = PACKAGE\n",
        "",
        (NAMES, "-k", "exported_name_says"),
    ),
    Mutant(
        "the import of outlast loads the app",
        "__init__.py",
        "from outlast import errors\n",
        "from outlast import errors\nfrom outlast.app import App as _\n",
        (NAMES, "-k", "errors_alone"),
    ),
]
