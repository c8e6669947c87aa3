"""Logging in workflow and step code: every line says which run, step and attempt it is from, and a
replay says nothing that was said before."""

from __future__ import annotations

import logging
from typing import Any

from outlast._public import public
from outlast.call import workflow_here
from outlast.engine.replay.error_text import shown
from outlast.engine.steps.step_executor import step_context


class RunLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger for workflow and step code. Its records have `run`, `workflow`, `step` and `attempt`,
    as far as there are any, and their messages end with them."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is logging's
        """Whether something is logged now: not while code is replayed."""
        run = workflow_here()
        return (run is None or not run.replaying) and super().isEnabledFor(level)

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log, with the place where this is said."""
        if not self.isEnabledFor(level):
            return
        place = _place()
        if place:
            kwargs["extra"] = {**place, **kwargs.get("extra", {})}
            told = " ".join(f"{name}={shown(str(value))}" for name, value in place.items())
            msg = f"{msg} [{told.replace('%', '%%') if args else told}]"
        # One frame more than usual lies between the user's line and the logger.
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        self.logger.log(level, msg, *args, **kwargs)


@public
def get_logger(name: str | None = None) -> RunLogger:
    """The logger to use in workflows and steps, instead of `logging.getLogger`."""
    return RunLogger(logging.getLogger(name), {})


def _place() -> dict[str, Any]:
    run = workflow_here()
    if run is not None:
        return {"run": run.run_id, "workflow": run.workflow.name}
    step = step_context.get(None)
    if step is not None:
        return {"run": step.run_id, "step": step.key, "attempt": step.attempt}
    return {}
