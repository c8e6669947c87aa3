"""outlast in a Django project: durable state in the database that the project already has.

::

    view ── runs.start(…) ── the view's transaction ──┐
                                                      ▼
    manage.py outlast worker ── engine ──────▶ tables of outlast ◀── Run.objects, admin
                                │ atomic             beside yours
                                └─ a transactional step: your rows and its completion, one commit

``INSTALLED_APPS = [..., "outlast.contrib.django"]``, ``manage.py migrate``, workflows in
``workflows.py`` of an app, and ``manage.py outlast worker`` beside the web server. The setting `OUTLAST`
(conf.py) has the options. PostgreSQL and SQLite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.contrib.django.client import runs as runs
    from outlast.contrib.django.worker import app as app

__all__ = ["app", "runs"]


def __getattr__(name: str) -> Any:
    # Django imports this package before its settings and apps are loaded.
    if name == "runs":
        from outlast.contrib.django.client import runs

        return runs
    if name == "app":
        from outlast.contrib.django.worker import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
