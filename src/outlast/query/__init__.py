"""Questions about runs: which ones there are (a small language), what one has done, and what it
waits for. Used by the command line, and by whoever else shows runs to people.

::

    parse("status:failed age>1d")  ──▶ Filter ──▶ search(store, filter) ──▶ Matches
                                          │
              its meaning: matches(run, now)   its plan: indexes that hold all that matches

The meaning is decided in Python, for every run, on every store; the plan only says where to look,
and may name too many runs but never too few. So the answers are the same everywhere.
"""

from outlast.query.filter import Filter
from outlast.query.parser import parse
from outlast.query.plan import best_order
from outlast.query.search import Count, Matches, all_matching, count, search

__all__ = ["Count", "Filter", "Matches", "all_matching", "best_order", "count", "parse", "search"]
