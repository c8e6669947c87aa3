"""Schedules: workflows that are started by the clock.

A schedule is itself a run, of a built-in workflow that sleeps until the next firing and starts a
run for it. So there is no scheduler beside the engine: its timer is a timer, its state is a history,
a worker that dies is taken over, and what people change at run time is an update on record. Each
firing starts one run, whoever fires it, because the run's id is made of the schedule and the time::

    schedule@nightly ── sleeps until 02:00 ── starts nightly@20261115T020000Z ── sleeps …
         ▲
         └── pause, resume, change, trigger, backfill: updates in its inbox
"""

from outlast.schedules.client import Schedules, ScheduleState
from outlast.schedules.schedule import Schedule

__all__ = ["Schedule", "ScheduleState", "Schedules"]
