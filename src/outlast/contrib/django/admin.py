"""Runs in Django's admin: search by workflow and status, history, and the actions cancel, retry, signal.

Everything is read-only except the actions, which use `outlast.contrib.django.runs`: they run in the
transaction of the request, for users with the permission to change runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join

from outlast.contrib.django.client import runs
from outlast.contrib.django.conf import read_settings
from outlast.contrib.django.models import Event, Run
from outlast.contrib.django.store import thread_store
from outlast.contrib.django.wakeups import run_blocking
from outlast.errors import OutlastError

PAYLOADS = ("input", "result", "halt_data", "ctx")
LONGEST = 2_000
EVENTS = 500


class WorkflowFilter(admin.SimpleListFilter):
    """Filter by workflow. The store counts runs by workflow, so this reads no table."""

    title = "workflow"
    parameter_name = "workflow"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The names of all workflows."""
        counts = run_blocking(thread_store(read_settings()).counts())
        return [(name, name) for name in sorted({workflow for workflow, _ in counts})]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """The runs of the chosen workflow."""
        return queryset.filter(workflow=self.value()) if self.value() else queryset


class SignalForm(forms.Form):
    """Name and value of the signal to send."""

    name = forms.CharField(max_length=200)
    value = forms.JSONField(
        required=False, help_text='JSON: 7, "text", {"approved": true}. Empty: no value.'
    )


@admin.register(Run)
class RunAdmin(admin.ModelAdmin):
    """Runs, newest first."""

    list_display = ("id", "workflow", "status", "current_step", "created_at", "ended_at")
    list_filter = ("status", WorkflowFilter)
    search_fields = ("^id",)
    show_full_result_count = False
    actions = ("cancel", "retry", "signal")
    fieldsets = (
        (None, {"fields": ("id", "workflow", "status", "wait_kind", "current_step", "error")}),
        ("Values", {"fields": ("shown_input", "shown_result", "shown_halt_data", "shown_ctx")}),
        ("Place", {"fields": ("parent", "queue", "priority", "attributes", "owner", "uid")}),
        ("Times", {"fields": ("created_at", "updated_at", "ended_at", "runnable_at")}),
        ("History", {"fields": ("history",)}),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        """Without payloads: a list does not show them, and a damaged one must not break the list."""
        return super().get_queryset(request).defer(*PAYLOADS)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """All fields."""
        return [name for _, options in self.fieldsets for name in options["fields"]]

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        """Runs are started by code only."""
        return False

    def has_delete_permission(self, request: HttpRequest, *_: Any) -> bool:
        """Runs are deleted with `manage.py outlast rm` or `runs.get(id).delete()`."""
        return False

    def render_change_form(self, request: HttpRequest, context: Any, **options: Any) -> Any:
        """Without buttons to save."""
        context |= {"show_save": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, **options)

    # -- fields -------------------------------------------------------------------------------

    @admin.display(description="input")
    def shown_input(self, run: Run) -> Any:
        """The input of the run."""
        return _shown(lambda: run.input)

    @admin.display(description="result")
    def shown_result(self, run: Run) -> Any:
        """The result of the run."""
        return _shown(lambda: run.result)

    @admin.display(description="halt data")
    def shown_halt_data(self, run: Run) -> Any:
        """The data of a halt, for the person who answers it."""
        return _shown(lambda: run.halt_data)

    @admin.display(description="published")
    def shown_ctx(self, run: Run) -> Any:
        """The values that the run has published."""
        return _shown(lambda: run.ctx)

    @admin.display(description="history")
    def history(self, run: Run) -> Any:
        """The events of the run; the first ones, if there are many."""
        events = Event.objects.filter(run=run.key).defer("data", "output")[: EVENTS + 1]
        rows = [(e.sequence, e.timestamp, e.type, e.step_name) for e in events]
        table = format_html(
            "<table><tr><th>#</th><th>time</th><th>event</th><th>step</th></tr>{}</table>",
            format_html_join(
                "", "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", rows[:EVENTS]
            ),
        )
        if len(rows) > EVENTS:
            return format_html("{}<p>and more: outlast show {}</p>", table, run.id)
        return table

    # -- actions ------------------------------------------------------------------------------

    @admin.action(description="Cancel: stop and compensate", permissions=["change"])
    def cancel(self, request: HttpRequest, queryset: Any) -> None:
        """Ask the runs to stop."""
        self._act(
            request, queryset, "cancelled", lambda id: runs.get(id).cancel("cancelled by admin")
        )

    @admin.action(description="Retry from the step that failed", permissions=["change"])
    def retry(self, request: HttpRequest, queryset: Any) -> None:
        """Retry failed runs."""
        self._act(request, queryset, "retried", lambda id: runs.get(id).retry())

    @admin.action(description="Send a signal …", permissions=["change"])
    def signal(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        """Ask for name and value, then send it."""
        form = SignalForm(request.POST if "apply" in request.POST else None)
        if form.is_valid():
            name = form.cleaned_data["name"]
            # The form field returns strings as a subclass of str.
            value = json.loads(json.dumps(form.cleaned_data["value"]))
            self._act(request, queryset, "signalled", lambda id: runs.get(id).signal(name, value))
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": "Send a signal",
            "queryset": list(queryset),
            "form": form,
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/outlast/signal.html", context)

    def _act(
        self, request: HttpRequest, queryset: Any, done: str, act: Callable[[str], object]
    ) -> None:
        acted = 0
        for run_id in queryset.values_list("id", flat=True):
            try:
                act(run_id)
                acted += 1
            except OutlastError as error:
                self.message_user(request, f"{run_id}: {error}", messages.ERROR)
        if acted:
            self.message_user(request, f"{done}: {acted}", messages.SUCCESS)


def _shown(read: Callable[[], Any]) -> Any:
    try:
        value = read()
    except OutlastError as error:
        return f"cannot be decoded: {error}"
    if value in (None, {}):
        return "-"
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return format_html("<pre>{}</pre>", text if len(text) <= LONGEST else f"{text[:LONGEST]} …")
