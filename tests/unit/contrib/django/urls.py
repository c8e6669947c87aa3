from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path

from outlast.contrib.django import runs
from outlast.contrib.django.conf import read_settings
from tests.unit.contrib.django.shop.models import Order
from tests.unit.contrib.django.shop.workflows import doubled


def place(request: HttpRequest, name: str) -> HttpResponse:
    """An order and its run, without `atomic`; `fail` and `wait` say what happens after that."""
    Order.objects.using(read_settings().database).create(name=name)
    handle = runs.start(doubled(1), id=name)
    if "fail" in request.GET:
        raise ZeroDivisionError
    return HttpResponse(str(handle.result(timeout=0.1)) if "wait" in request.GET else handle.id)


urlpatterns = [path("admin/", admin.site.urls), path("place/<name>", place)]
