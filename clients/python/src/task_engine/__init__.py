"""Task Engine: background tasks on PostgreSQL or SQLite.

Create tasks in your own transaction (`create`, `create_async`) or over HTTP (`HttpClient`), and
execute them in workers (`task`, `serve`). `task_engine.testing` runs a task without an engine.
"""

__version__ = "0.1.0"

from .context import AsyncContext, Context, current_context
from .create import (
    TaskId,
    create,
    create_async,
    create_flow,
    create_flow_async,
    create_many,
    create_many_async,
    signal,
    signal_async,
    signal_by_key,
    signal_by_key_async,
)
from .errors import (
    AttemptEnded,
    ChildFailed,
    DependencyFailed,
    HttpError,
    InvalidArgument,
    InvalidParameters,
    NoRetry,
    RateLimited,
    RetryAfter,
    ServerError,
    Snooze,
    TaskCancelled,
    TaskEngineError,
    TaskStopped,
    WaitTimedOut,
    WorkerRefused,
)
from .flow import CreatedFlow, Flow
from .http_client import HttpClient
from .logs import TaskLogHandler
from .new_task import NewTask, RetryRule
from .tasks import Task, task
from .worker import serve

__all__ = [
    "AsyncContext",
    "AttemptEnded",
    "ChildFailed",
    "Context",
    "CreatedFlow",
    "DependencyFailed",
    "Flow",
    "HttpClient",
    "HttpError",
    "InvalidArgument",
    "InvalidParameters",
    "NewTask",
    "NoRetry",
    "RateLimited",
    "RetryAfter",
    "RetryRule",
    "ServerError",
    "Snooze",
    "Task",
    "TaskCancelled",
    "TaskEngineError",
    "TaskId",
    "TaskLogHandler",
    "TaskStopped",
    "WaitTimedOut",
    "WorkerRefused",
    "create",
    "create_async",
    "create_flow",
    "create_flow_async",
    "create_many",
    "create_many_async",
    "current_context",
    "serve",
    "signal",
    "signal_async",
    "signal_by_key",
    "signal_by_key_async",
    "task",
]
