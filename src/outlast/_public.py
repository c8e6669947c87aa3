"""`public`: marks what `outlast` exports, where it is defined.

`outlast.App` is defined in `outlast.app`, and users import it from `outlast`: that is the module which
tracebacks, reprs, help pages and pickles name, whichever module was imported first.
"""

from __future__ import annotations

from inspect import get_annotations
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")

PACKAGE = __name__.partition(".")[0]


def public(exported: T) -> T:
    """The class or function, with `outlast` as its module."""
    thing: Any = exported
    if isinstance(thing, type) and get_annotations(thing):
        # As values: text would be looked up in the module that the class names.
        thing.__annotations__ = get_type_hints(thing, include_extras=True)
    thing.__module__ = PACKAGE
    return exported
