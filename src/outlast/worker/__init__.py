"""What a process does for runs that others drive."""

from outlast.worker.doorman import Doorman
from outlast.worker.relay import Relay
from outlast.worker.tasks import STEPS_AT_ONCE, TaskWorker

__all__ = ["STEPS_AT_ONCE", "Doorman", "Relay", "TaskWorker"]
