"""The errors of this library, and what a task raises to say how it ends."""

from __future__ import annotations

from typing import Any, Optional

from .durations import Duration, duration_text

__all__ = [
    "AttemptEnded",
    "ChildFailed",
    "DependencyFailed",
    "HttpError",
    "InvalidArgument",
    "InvalidParameters",
    "NoRetry",
    "RateLimited",
    "RetryAfter",
    "ServerError",
    "Snooze",
    "TaskCancelled",
    "TaskEngineError",
    "TaskStopped",
    "WaitTimedOut",
    "WorkerRefused",
]


class TaskEngineError(Exception):
    """The base of all errors of this library."""

    code: Optional[str] = None
    """The code of the server: an SQLSTATE, or the status of HTTP."""


class InvalidArgument(TaskEngineError, ValueError):
    """An argument was refused before anything was sent."""


class ServerError(TaskEngineError):
    """The database refused the call. `code` is the SQLSTATE; the cause is the driver's error."""

    def __init__(self, message: str, code: Optional[str] = None) -> None:
        super().__init__(message)
        self.code = code


class HttpError(TaskEngineError):
    """The HTTP API refused the call, or gave no answer (then `status` is 0)."""

    def __init__(self, status: int, message: str, problem: Optional[dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = str(status) if status else None
        self.problem: dict[str, Any] = problem or {}
        """The answer: `title`, `detail`, and `pointer`, `parameter` or `outcome`, if any."""


class WorkerRefused(TaskEngineError):
    """The engine refused this worker, for example because of its token."""


# What a task raises to say how its attempt ends.


class InvalidParameters(TaskEngineError):
    """The parameters do not fit the function. The task fails without a retry."""


class NoRetry(TaskEngineError):
    """Fails the task without a retry: `raise NoRetry("there is no such account")`."""


class RetryAfter(TaskEngineError):
    """Fails the attempt, and retries it after this time: `raise RetryAfter("30s", "busy")`."""

    def __init__(self, time: Duration, message: str = "") -> None:
        super().__init__(message)
        self.time = duration_text(time)


class Snooze(TaskEngineError):
    """Postpones the task. It uses no retry: `raise Snooze("1h", "the file is not there yet")`."""

    def __init__(self, time: Duration, message: str = "") -> None:
        super().__init__(message)
        self.time = duration_text(time)


class RateLimited(Snooze):
    """Postpones the task, and closes the keys of its limits for this time."""


# What durable calls raise.


class WaitTimedOut(TaskEngineError):
    """The signal did not arrive in time."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the signal {name} did not arrive in time")
        self.name = name


class ChildFailed(TaskEngineError):
    """A child task did not succeed."""

    def __init__(self, task_id: int, status: str, error: dict[str, Any]) -> None:
        self.message = str(error.get("message") or "")
        self.exception = str(error.get("exception") or "")
        said = ": ".join(part for part in (self.exception, self.message) if part)
        super().__init__(f"task {task_id} {status}: {said}" if said else f"task {task_id} {status}")
        self.task_id = task_id
        self.status = status
        self.error = error


class DependencyFailed(ChildFailed):
    """A task that this one depends on did not succeed, so it has no result."""


class TaskStopped(BaseException):
    """Stop working on the task. Not an `Exception`, so that error handling does not catch it."""


class TaskCancelled(TaskStopped):
    """The task was cancelled, or its time is over."""


class AttemptEnded(TaskStopped):
    """The engine has ended the attempt, for example because the task sleeps."""
