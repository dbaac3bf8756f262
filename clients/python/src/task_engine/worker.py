"""`serve`: announces the tasks, and runs them until the engine has no more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, Optional

from . import __version__
from .errors import InvalidArgument
from .executor import AsyncExecutor, ThreadExecutor
from .remote import RemoteWorker
from .schema import parameters_schema
from .session import Session
from .stdio import StandardStreams
from .tasks import Task, registered

__all__ = ["serve"]


def serve(
    tasks: Optional[Iterable[Task[Any, Any]]] = None,
    *,
    concurrency: int = 10,
    connect: Optional[str] = None,
    token: Optional[str] = None,
    ca: Optional[str] = None,
    name: Optional[str] = None,
    schemas: bool = True,
) -> None:
    """Runs tasks until the engine ends this worker.

    Without `tasks`, these are all that are registered. An engine that has started this process
    is reached through the standard streams. With `connect`, or the variable
    TASK_ENGINE_CONNECT, the worker connects to an engine: "tcp://host:8643",
    "tls://host:8643" or "unix:/path".
    """
    by_name = registered() if tasks is None else {task.name: task for task in tasks}
    if not by_name:
        raise InvalidArgument('no task is registered; write @task("greet") above a function')
    if isinstance(concurrency, bool) or not 1 <= concurrency <= 10_000:
        raise InvalidArgument(f"concurrency is a number from 1 to 10000, not {concurrency!r}")
    announcement = _announcement(by_name, concurrency, schemas)
    threads, coroutines = ThreadExecutor(), AsyncExecutor()
    address = connect or os.environ.get("TASK_ENGINE_CONNECT")
    if address:
        announcement["token"] = token or os.environ.get("TASK_ENGINE_LISTEN_TOKEN")
        announcement["name"] = name
        announcement = {key: value for key, value in announcement.items() if value is not None}
        ca = ca or os.environ.get("TASK_ENGINE_CONNECT_CA")
        RemoteWorker(address, ca, announcement, by_name, threads, coroutines).run()
        return
    streams = StandardStreams()
    if sys.__stdin__ is not None and os.isatty(streams.input):
        print(
            "task-engine: this worker is started by an engine, which sends tasks to its standard "
            "input: see [worker.NAME] in task-engine.toml. Or set TASK_ENGINE_CONNECT.",
            file=sys.stderr,
        )
    session = Session(streams, by_name, threads, coroutines)
    session.start(announcement)
    session.run()
    session.finish()


def _announcement(
    tasks: dict[str, Task[Any, Any]], concurrency: int, schemas: bool
) -> dict[str, Any]:
    classes = []
    for name, task in tasks.items():
        entry = {"class": name, **task.options}
        signature = task.signature  # reports its errors now, not with the first task
        if schemas:
            entry["schema"] = parameters_schema(signature)
        classes.append(entry)
    return {
        "protocol": 1,
        "client": f"task-engine-python {__version__}",
        "classes": classes,
        "concurrency": concurrency,
    }
