"""Schedules: workflows that are started by the clock.

A schedule is itself a run, of a built-in workflow that sleeps until the next firing and starts a
run for it. So outlast needs no separate scheduler process: the schedule's timer is a durable timer, its
state is a history, another worker takes over after a crash, and changes are recorded updates. Each firing
starts exactly one run, because the run's id consists of the schedule's name and the time::

    schedule@nightly ── sleeps until 02:00 ── starts nightly@20261115T020000Z ── sleeps …
         ▲
         └── pause, resume, change, trigger, backfill: updates in its inbox
"""

from outlast.schedules.client import Schedules, ScheduleState
from outlast.schedules.schedule import Schedule

__all__ = ["Schedule", "ScheduleState", "Schedules"]
