"""SQS: a queue of its own, or the wake-up channel of workers that share a store (extra `sqs`)."""

from outlast.queues.sqs.queue import SqsQueue
from outlast.queues.sqs.wakeups import SqsWakeups

__all__ = ["SqsQueue", "SqsWakeups"]
