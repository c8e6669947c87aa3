"""Tasks of the shop, for `django.tasks`."""

from __future__ import annotations

from typing import Any

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task

done: list[Any] = []


@task
def add(one: int, other: int = 1) -> int:
    done.append(one)
    return one + other


@task(takes_context=True)
async def tell(context: Any, text: str) -> list[Any]:
    return [text, context.attempt]


@task
def fall() -> None:
    raise LookupError("there is nothing")
