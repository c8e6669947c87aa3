"""Tells pytest about the kit's marker. In your ``conftest.py``::

pytest_plugins = ["outlast.testkit.conformance.plugin"]
"""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `proves`, so that ``--strict-markers`` knows it."""
    config.addinivalue_line(
        "markers", "proves(*ids): the ids of the contracts that this test proves"
    )
