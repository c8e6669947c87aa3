"""Queries: which runs match (a small language), what a run has done (`outline`), and why it does not
advance (`why`). The command line, the admin and the web use them.

::

    parse("status:failed age>1d")  ──▶ Filter ──▶ search(store, filter) ──▶ Matches
                                          │
                       matches(run, now)      plan: index searches that find all matches

Python checks the filter for every run, on every store. The plan only chooses where to look; it may find too
many runs but never too few. So all stores give the same answers.
"""

from outlast.query.filter import Filter
from outlast.query.parser import parse
from outlast.query.plan import best_order
from outlast.query.search import Count, Matches, all_matching, count, search

__all__ = ["Count", "Filter", "Matches", "all_matching", "best_order", "count", "parse", "search"]
