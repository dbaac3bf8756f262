"""`logging` in tasks: records go to the log of the task that runs."""

from __future__ import annotations

import logging

from .context import current_context

__all__ = ["TaskLogHandler"]


class TaskLogHandler(logging.Handler):
    """Sends records to the log of the running task: `logging.basicConfig(handlers=[...])`.

    Records outside of tasks are ignored; add another handler for them.
    """

    def emit(self, record: logging.LogRecord) -> None:
        context = current_context()
        if context is None:
            return
        try:
            # Without the check for cancellation: a library that logs must not be ended by it.
            context._log(self.format(record))
        except Exception:
            self.handleError(record)
