"""Runs in the admin: they are found, seen and acted on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test import Client

from outlast.contrib.django import runs
from outlast.contrib.django.models import Run
from outlast.contrib.django.testing import run_all
from tests.unit.contrib.django.places import SQLITE, made
from tests.unit.contrib.django.shop.workflows import doubled, greeted, refused

RUNS = "/admin/outlast/run/"


@pytest.fixture
def admin(alias: str) -> Iterator[Client]:
    """A person who may do everything."""
    made(SQLITE)  # where users are
    user = User.objects.create_superuser("root")
    client = Client()
    client.force_login(user)
    yield client
    user.delete()


def act(admin: Client, action: str, *ids: str, **more: str) -> str:
    """Choose runs and an action, and go."""
    data = {"action": action, "_selected_action": ids, **more}
    page: str = admin.post(RUNS, data, follow=True).content.decode().lower()
    return page


def test_runs_are_found_by_status_and_workflow(admin: Client) -> None:
    """Filters and search look at columns that have an index."""
    runs.start(doubled(4), id="one")
    runs.start(greeted(), id="two")
    run_all()
    assert "one" in admin.get(RUNS).content.decode()
    page = admin.get(RUNS, {"status__exact": "completed"}).content.decode()
    assert f"{RUNS}one/" in page
    assert f"{RUNS}two/" not in page
    page = admin.get(RUNS, {"workflow": "greeted"}).content.decode()
    assert f"{RUNS}two/" in page
    assert f"{RUNS}one/" not in page
    assert f"{RUNS}two/" in admin.get(RUNS, {"q": "tw"}).content.decode()


def test_a_run_is_shown_with_its_history(admin: Client) -> None:
    """Its values are text, whatever is in them."""
    runs.start(refused(3), id="r", attributes={"who": "<script>"})
    run_all()
    page = admin.get(f"{RUNS}r/change/").content.decode()
    assert "step.failed" in page
    assert "3 is refused" in page
    assert "<script>alert" not in page
    assert 'name="_save"' not in page


def test_a_damaged_value_does_not_spoil_the_page(admin: Client, alias: str) -> None:
    """It says that it cannot be decoded."""
    runs.start(doubled(4), id="d")
    with connections[alias].cursor() as cursor:
        cursor.execute("UPDATE outlast_run_details SET input = %s", [b"{damaged"])
    assert f"{RUNS}d/" in admin.get(RUNS).content.decode()
    assert "cannot be decoded" in admin.get(f"{RUNS}d/change/").content.decode()


def test_actions(admin: Client) -> None:
    """Cancel, retry and signal do what their names say, and say what cannot be done."""
    runs.start(greeted(), id="g")
    runs.start(greeted(), id="h")
    runs.start(refused(3), id="r")
    run_all()
    assert "send a signal" in act(admin, "signal", "g")
    assert "signalled: 1" in act(admin, "signal", "g", apply="1", name="name", value='"you"')
    assert "cancelled: 1" in act(admin, "cancel", "h")
    page = act(admin, "retry", "r", "h")
    assert "retried: 1" in page
    assert "only a failed run" in page
    run_all()
    assert Run.objects.get(id="g").result == "hello you"
    assert Run.objects.get(id="h").status == "cancelled"
    assert runs.get("r").status().uid != ""


def test_who_may_only_look_cannot_act(admin: Client) -> None:
    """The actions need the right to change runs."""
    runs.start(greeted(), id="g")
    guest = User.objects.create_user("guest", is_staff=True)
    guest.user_permissions.add(Permission.objects.get(codename="view_run"))
    try:
        client = Client()
        client.force_login(guest)
        assert f"{RUNS}g/" in client.get(RUNS).content.decode()
        act(client, "cancel", "g")
        assert runs.get("g").status().inbox == 0
    finally:
        guest.delete()
