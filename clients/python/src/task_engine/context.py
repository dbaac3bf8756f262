"""What a task function gets: about its task, and calls to the engine."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import threading
from collections.abc import Awaitable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, cast, overload

from . import durable
from .create import AnyTask
from .durations import Duration
from .errors import AttemptEnded, DependencyFailed, TaskCancelled, TaskEngineError
from .json_values import encode, encode_text

if TYPE_CHECKING:
    from .session import Session

__all__ = ["AsyncContext", "BaseContext", "Context", "current_context"]

T = TypeVar("T")

_current: contextvars.ContextVar[BaseContext] = contextvars.ContextVar("task_engine_context")


def current_context() -> Optional[BaseContext]:
    """The context of the task that runs here, if any."""
    return _current.get(None)


class BaseContext:
    """What `Context` and `AsyncContext` have in common."""

    def __init__(self, session: Session, line: dict[str, Any]) -> None:
        self._session = session
        self._line = line
        self._head = f'{{"id":{encode(line["id"])},'
        self._cancelled = False
        self._over = False
        # What waits for an answer, in the order of the requests.
        self._waiting: collections.deque[tuple[str, Any]] = collections.deque()
        self._log_lines: list[str] = []
        self._lock = threading.Lock()

    @property
    def task_id(self) -> int:
        return int(self._line["task_id"])

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return int(self._line["attempt"])

    @property
    def retry_number(self) -> int:
        """How many retries were used before, from 0."""
        return int(self._line["retry_number"])

    @property
    def task_class(self) -> str:
        return str(self._line["class"])

    @property
    def correlation_id(self) -> str:
        """The flow of the task."""
        return str(self._line["correlation_id"])

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters as they came."""
        return cast("dict[str, Any]", self._line["parameters"])

    @property
    def dependencies(self) -> dict[str, dict[str, Any]]:
        """The tasks that this one depends on, by name, or by id if a task has no name. Each has
        its `id` and `status`, and its `result` or `error`."""
        return self._line.get("dependencies") or {}

    def result_of(self, name: Union[str, int], type: Any = Any) -> Any:
        """The result of a task that this one depends on, by its name or id."""
        found = self.dependencies.get(str(name))
        if found is None:
            matching = [one for one in self.dependencies.values() if one.get("id") == name]
            if not matching:
                known = ", ".join(self.dependencies) or "it depends on none"
                raise TaskEngineError(f"this task does not depend on {name!r}; known: {known}")
            (found,) = matching
        if "error" in found:
            error = found["error"] if isinstance(found["error"], dict) else {}
            raise DependencyFailed(found["id"], found["status"], error)
        if found.get("result_omitted"):
            raise TaskEngineError(f"the result of {name!r} is too long to be passed on")
        return durable.read(found.get("result"), type, f"the result of {name}")

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled, or its time is over."""
        return self._cancelled

    def log(self, message: object) -> None:
        """Adds lines to the log of the task."""
        self._check()
        self._log(str(message))

    def progress(self, percent: float, message: str = "") -> None:
        """Reports the progress, from 0 to 100."""
        self._check()
        said = f',"message":{encode_text(str(message))}' if message else ""
        self._send(f'"progress":{encode(float(percent))}{said}}}')

    def _log(self, text: str) -> None:
        """Pending lines are sent together, as a list."""
        with self._lock:
            if self._over:
                return
            self._log_lines.append(text)
            if len(self._log_lines) == 1:
                self._session.send_log(self)

    def _take_log(self) -> list[str]:
        with self._lock:
            lines, self._log_lines = self._log_lines, []
        return lines

    def _check(self) -> None:
        if self._over:
            raise AttemptEnded("the attempt has ended")
        if self._cancelled:
            raise TaskCancelled("the task was cancelled, or its time is over")

    def _send(self, rest: str, waiting: Optional[tuple[str, Any]] = None) -> None:
        with self._lock:
            self._check()
            if waiting is not None:
                if self._session.is_closing:
                    raise AttemptEnded("the engine has closed the connection")
                self._waiting.append(waiting)
            self._session.send(self._head + rest)

    def _answer(self, rest: Optional[str]) -> None:
        """The last line about the task."""
        with self._lock:
            if not self._over:
                self._over = True
                if rest is not None:
                    self._session.send(self._head + rest)

    def _receive(self, line: dict[str, Any]) -> None:
        """An answer of the engine to the oldest request."""
        if "ended" in line:
            self._end(str(line.get("message", line["ended"])))
        elif self._waiting and self._waiting[0][0] in line:
            _, waiter = self._waiting.popleft()
            waiter.set(line)

    def _end(self, message: str) -> None:
        with self._lock:
            self._over = True
            self._log_lines.clear()
        while self._waiting:
            self._waiting.popleft()[1].set(AttemptEnded(message))

    def _cancel(self) -> None:
        self._cancelled = True
        with self._lock:
            waiting, self._waiting = self._waiting, collections.deque()
            # Answers to these requests still come.
            self._waiting.extend((kind, _Nothing) for kind, _ in waiting)
        for _, waiter in waiting:
            waiter.set(TaskCancelled("the task was cancelled, or its time is over"))


class _Nothing:
    @staticmethod
    def set(answer: Any) -> None:
        pass


class _Waiter:
    """Blocks a thread until the answer is there."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._answer: Any = None

    def set(self, answer: Any) -> None:
        self._answer = answer
        self._done.set()

    def get(self) -> dict[str, Any]:
        self._done.wait()
        if isinstance(self._answer, BaseException):
            raise self._answer
        return cast("dict[str, Any]", self._answer)


class Context(BaseContext):
    """The context of a task function that is not `async`. It runs in a thread."""

    _cancel_event: Optional[threading.Event] = None

    def wait_cancelled(self, timeout: Optional[Duration] = None) -> bool:
        """Waits until the task is cancelled, at most for this time. Returns whether it is."""
        with self._lock:
            event = self._cancel_event = self._cancel_event or threading.Event()
        if self._cancelled:
            return True
        return event.wait(None if timeout is None else durable.seconds(timeout))

    @overload
    def step(self, name: str, code: Callable[[], T]) -> T: ...
    @overload
    def step(self, name: str, code: Callable[[], object], *, type: type[T]) -> T: ...
    def step(self, name: str, code: Callable[[], Any], *, type: Any = Any) -> Any:
        """Runs code once. Returns its result as JSON, which later attempts get, too."""
        answer = self._ask(durable.step(name))
        if "recorded" not in answer:
            answer = self._ask(durable.step_result(answer["step"], code()))
        return durable.read(answer["recorded"], type, f"the result of the step {name}")

    def sleep(
        self, name: str, duration: Optional[Duration] = None, *, until: Optional[datetime] = None
    ) -> None:
        """Sleeps, without a worker. A long sleep ends the attempt; another one continues."""
        self._ask(durable.sleep(name, duration, until))

    def wait_for(
        self, name: str, timeout: Duration, *, type: Any = Any, default: Any = durable.MISSING
    ) -> Any:
        """Waits for a signal, and returns its payload. If it does not come in time, returns the
        default, or raises `WaitTimedOut`."""
        return self._ask(durable.wait(name, timeout, type, default))

    def call(
        self,
        task: AnyTask,
        parameters: Any = None,
        *,
        queue: Optional[str] = None,
        priority: Optional[int] = None,
        name: Optional[str] = None,
        type: Any = Any,
    ) -> Any:
        """Creates a child task, and returns its result. Raises `ChildFailed`."""
        child = durable.child(task, parameters, queue, priority)
        return self._ask(durable.call([child], name, type))[0]

    def call_all(
        self,
        tasks: Iterable[AnyTask],
        *,
        name: Optional[str] = None,
        type: Any = Any,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Creates child tasks, and returns their results when all have ended. Raises the first
        `ChildFailed`, or returns it among the results."""
        children = [durable.child(task) for task in tasks]
        return self._ask(durable.call(children, name, type, return_exceptions)) if children else []

    def _ask(self, request: durable.Request) -> Any:
        waiter = _Waiter()
        self._send(request.line, (request.kind, waiter))
        return request.read(waiter.get())

    def _cancel(self) -> None:
        super()._cancel()
        with self._lock:
            event = self._cancel_event
        if event is not None:
            event.set()


class _Future:
    """As `_Waiter`, in an event loop."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def set(self, answer: Any) -> None:
        if self._future.done():
            return
        if isinstance(answer, BaseException):
            self._future.set_exception(answer)
            self._future.exception()  # nothing is logged if it is not awaited any more
        else:
            self._future.set_result(answer)


class AsyncContext(BaseContext):
    """The context of an `async` task function."""

    _task: Optional[asyncio.Task[Any]] = None
    _cancel_event: Optional[asyncio.Event] = None
    _cancel_waiters = 0

    async def wait_cancelled(self, timeout: Optional[Duration] = None) -> bool:
        """Waits until the task is cancelled, at most for this time. Returns whether it is. While
        a task waits here, it gets no `asyncio.CancelledError`."""
        if self._cancelled:
            return True
        event = self._cancel_event = self._cancel_event or asyncio.Event()
        self._cancel_waiters += 1
        try:
            await asyncio.wait_for(
                event.wait(), None if timeout is None else durable.seconds(timeout)
            )
        except asyncio.TimeoutError:
            return False
        finally:
            self._cancel_waiters -= 1
        return True

    @overload
    async def step(self, name: str, code: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def step(self, name: str, code: Callable[[], T]) -> T: ...
    @overload
    async def step(self, name: str, code: Callable[[], object], *, type: type[T]) -> T: ...
    async def step(self, name: str, code: Callable[[], Any], *, type: Any = Any) -> Any:
        """Runs code once, which may be async. Returns its result as JSON, which later attempts
        get, too."""
        answer = await self._ask(durable.step(name))
        if "recorded" not in answer:
            result = code()
            if isinstance(result, Awaitable):
                result = await result
            answer = await self._ask(durable.step_result(answer["step"], result))
        return durable.read(answer["recorded"], type, f"the result of the step {name}")

    async def sleep(
        self, name: str, duration: Optional[Duration] = None, *, until: Optional[datetime] = None
    ) -> None:
        """As `Context.sleep`."""
        await self._ask(durable.sleep(name, duration, until))

    async def wait_for(
        self, name: str, timeout: Duration, *, type: Any = Any, default: Any = durable.MISSING
    ) -> Any:
        """As `Context.wait_for`."""
        return await self._ask(durable.wait(name, timeout, type, default))

    async def call(
        self,
        task: AnyTask,
        parameters: Any = None,
        *,
        queue: Optional[str] = None,
        priority: Optional[int] = None,
        name: Optional[str] = None,
        type: Any = Any,
    ) -> Any:
        """As `Context.call`."""
        child = durable.child(task, parameters, queue, priority)
        return (await self._ask(durable.call([child], name, type)))[0]

    async def call_all(
        self,
        tasks: Iterable[AnyTask],
        *,
        name: Optional[str] = None,
        type: Any = Any,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """As `Context.call_all`."""
        children = [durable.child(task) for task in tasks]
        results: list[Any] = []
        if children:
            results = await self._ask(durable.call(children, name, type, return_exceptions))
        return results

    async def _ask(self, request: durable.Request) -> Any:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._send(request.line, (request.kind, _Future(future)))
        return request.read(await future)

    def _cancel(self) -> None:
        if self._cancelled or self._over:
            return
        super()._cancel()
        if self._cancel_waiters and self._cancel_event is not None:
            self._cancel_event.set()
        elif self._task is not None:
            self._task.cancel()
