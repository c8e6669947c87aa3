"""SQS: a queue of its own, or the doorbell of workers that share a store (extra `sqs`)."""

from outlast.queues.sqs.doorbell import SqsDoorbell
from outlast.queues.sqs.queue import SqsQueue

__all__ = ["SqsDoorbell", "SqsQueue"]
