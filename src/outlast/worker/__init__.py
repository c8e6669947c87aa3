"""What a process does for runs that others drive."""

from outlast.worker.doorman import Doorman
from outlast.worker.relay import Relay
from outlast.worker.tasks import TaskWorker

__all__ = ["Doorman", "Relay", "TaskWorker"]
