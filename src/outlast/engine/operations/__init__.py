"""Operations: what workflow code can ask for, one primitive per file.

Each is read the same way: it is asked for under a key; if history has seen that key, history
answers; if not, its intent is recorded, and only then does anything happen in the world.
"""

from outlast.engine.operations.operation import Operation
from outlast.engine.operations.step import StepCall
from outlast.engine.operations.timer import TimerWait

__all__ = ["Operation", "StepCall", "TimerWait"]
