"""The conformance kit for queues: subclass it, give it a queue, run pytest.

::

    class TestMyQueue(QueueConformance):
        @pytest.fixture
        async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
            async with MyQueue(clock=clock, max_attempts=3) as queue:
                yield queue

The fixture gives an empty, open queue that takes its time from `clock` and allows a few attempts:
leases end and delays pass because a test says so, and no test sleeps. What a queue cannot promise it
declares, and the kit leaves those tests out and says why::

    class TestSqs(QueueConformance):
        exact_len = False     # ApproximateNumberOfMessages
        ordered = False       # best effort
        deduplicates = False  # a standard queue does not look inside
        policies = False         # nor fair keys

Tests are coroutines: set ``asyncio_mode = "auto"`` for pytest-asyncio, and declare the marker
``proves``, which names the contracts that a test proves.
"""

from __future__ import annotations

from outlast.testkit.conformance.queue_bulk import Bulk
from outlast.testkit.conformance.queue_dead import DeadTasks
from outlast.testkit.conformance.queue_delivery import Deliveries
from outlast.testkit.conformance.queue_leases import Leases
from outlast.testkit.conformance.queue_model import PolicyModel
from outlast.testkit.conformance.queue_policies import Policies
from outlast.testkit.conformance.queue_rules import Rules
from outlast.testkit.conformance.queue_waiting import Waiting

__all__ = ["QueueConformance"]


class QueueConformance(Deliveries, Bulk, Leases, DeadTasks, Waiting, Policies, Rules, PolicyModel):
    """All that a queue has to do, as pytest cases."""
