"""Choices that are recorded: a decision of the code, or which version of the code a run began with.

They are answered at once: live with what the code says, in replay with what it said then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from outlast.errors import WorkflowMisuse
from outlast.model.ids import check_name
from outlast.model.payloads import BranchEvaluated
from outlast.model.validation import check_value

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution

Choice = TypeVar("Choice", bound=str | bool)


def branch(execution: Execution, name: str, choice: Choice) -> Choice:
    """Record a decision, or give back the one that was recorded."""
    if not isinstance(choice, str | bool):
        raise WorkflowMisuse(
            f"branch({name!r}, …) records a str or a bool, not {type(choice).__name__}"
        )
    key = execution.scope.key(f"branch:{check_name(name, 'name of a branch')}")
    text = choice if isinstance(choice, str) else str(choice).lower()
    check_value(text, "choice", f"branch {name!r}")
    recorded = execution.past.choices.get(key, text)
    execution.say(key, BranchEvaluated(branch_name=name, choice=recorded))
    return cast("Choice", recorded == "true" if isinstance(choice, bool) else recorded)


def patched(execution: Execution, id: str) -> bool:
    """Whether this run goes the new way: True unless it passed this point before the patch."""
    key = execution.scope.key(f"patch:{id}")
    if key not in execution.past.choices and execution.replaying:
        return False
    execution.say(key, BranchEvaluated(branch_name=f"patch:{id}", choice="true"))
    return True
