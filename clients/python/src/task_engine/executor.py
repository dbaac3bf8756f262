"""Runs task functions: in threads, and in an event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, Optional

from .context import _current
from .errors import TaskCancelled
from .outcome import failure_line, result_line

if TYPE_CHECKING:
    from .context import AsyncContext, BaseContext, Context
    from .tasks import Task


class ThreadExecutor:
    """Threads for tasks that are not async. There are as many as tasks have run at a time."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Task[Any, Any], Context]] = queue.SimpleQueue()
        # Released by each thread that waits for work.
        self._idle = threading.Semaphore(0)
        self._started = 0

    def start(self, task: Task[Any, Any], context: Context) -> None:
        self._work.put((task, context))
        if not self._idle.acquire(blocking=False):
            self._started += 1
            name = f"task-engine {self._started}"
            # Daemons: a task whose attempt has ended does not keep the process.
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            task, context = self._work.get()
            token = _current.set(context)
            line: Optional[str]
            try:
                _refuse_cancelled(context)
                line = result_line(task.signature.call(task.function, context))
            except BaseException as error:
                line = failure_line(error, context)
            _current.reset(token)
            _finish(context, line)
            del task, context, line
            self._idle.release()


class AsyncExecutor:
    """An event loop in a thread, for async tasks."""

    def __init__(self) -> None:
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        # The loop has only weak references to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    def call(self, calls: Iterable[Callable[[], Any]]) -> None:
        """Calls all of them in the event loop."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(
                target=self._run_loop, name="task-engine asyncio", daemon=True
            )
            thread.start()
        self._loop.call_soon_threadsafe(_call_all, calls)

    def start(self, task: Task[Any, Any], context: AsyncContext) -> None:
        """Starts a task. Called in the event loop."""
        loop = self._loop
        assert loop is not None
        running = loop.create_task(_run_async(task, context))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    def _run_loop(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


def _call_all(calls: Iterable[Callable[[], Any]]) -> None:
    for call in calls:
        call()


async def _run_async(task: Task[Any, Any], context: AsyncContext) -> None:
    _current.set(context)
    line: Optional[str]
    try:
        # Not before: a coroutine that is cancelled before it begins could not answer.
        _refuse_cancelled(context)
        context._task = asyncio.current_task()
        line = result_line(await task.signature.call(task.function, context))
    except BaseException as error:
        line = failure_line(error, context)
    _finish(context, line)


def _refuse_cancelled(context: BaseContext) -> None:
    if context.cancelled:
        raise TaskCancelled("the task was cancelled before it began")


def _finish(context: BaseContext, line: Optional[str]) -> None:
    context._answer(line)
    context._session.ended(context)
