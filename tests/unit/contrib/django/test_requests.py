"""`ATOMIC_REQUESTS`: the request is the transaction, and what it starts is part of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections
from django.test import Client, override_settings

from outlast.contrib.django.models import Run
from tests.unit.contrib.django.shop.models import Order


@pytest.fixture
def client(alias: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A browser, on a site whose requests are transactions."""
    monkeypatch.setitem(connections.settings[alias], "ATOMIC_REQUESTS", True)
    with override_settings(ALLOWED_HOSTS=["testserver"]):
        yield Client(raise_request_exception=False)


def there(alias: str) -> tuple[list[str], list[str]]:
    """The orders and the runs."""
    orders = Order.objects.using(alias).values_list("name", flat=True)
    return list(orders), list(Run.objects.values_list("id", flat=True))


@pytest.mark.proves("I12")
def test_a_request_that_fails_leaves_nothing(alias: str, client: Client) -> None:
    """Neither the order nor the run; one that is answered leaves both."""
    assert client.get("/place/gone?fail=1").status_code == 500
    assert there(alias) == ([], [])
    assert client.get("/place/kept").status_code == 200
    assert there(alias) == (["kept"], ["kept"])


def test_a_request_that_waits_for_its_own_run_is_told(alias: str, client: Client) -> None:
    """It would never end: it fails at once, with what to write instead, and leaves nothing."""
    answer = client.get("/place/waits?wait=1")
    assert answer.status_code == 500
    assert "non_atomic_requests" in str(answer.exc_info[1])
    assert there(alias) == ([], [])
