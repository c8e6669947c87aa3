"""What a process does for runs that any process drives: tasks, admission, wake-ups, heartbeat."""

from outlast.worker.admission_worker import AdmissionWorker
from outlast.worker.task_worker import STEPS_AT_ONCE, TaskWorker
from outlast.worker.wakeup_relay import WakeupRelay

__all__ = ["STEPS_AT_ONCE", "AdmissionWorker", "TaskWorker", "WakeupRelay"]
