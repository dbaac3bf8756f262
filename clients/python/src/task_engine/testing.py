"""Runs a task function without an engine, for tests of your tasks.

run = run_task(order, {"item": "book"}, signals={"approved": {"by": "ada"}})
assert run.result == "shipped"
assert list(run.steps) == ["reserve", "charge"]
"""

from __future__ import annotations

import asyncio
import collections
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union, cast

from .context import AsyncContext, BaseContext, Context, _current
from .errors import ChildFailed, InvalidArgument
from .json_values import encode
from .outcome import result_line
from .session import Session
from .tasks import Task

__all__ = ["TaskRun", "run_task", "run_task_async"]


@dataclass
class TaskRun:
    """What a task did."""

    result: Any = None
    """The result as JSON has it: a dataclass is a dict."""
    logs: list[str] = field(default_factory=list)
    progress: list[tuple[float, str]] = field(default_factory=list)
    steps: dict[str, Any] = field(default_factory=dict)
    """The results of its steps by name, in their order."""
    sleeps: dict[str, str] = field(default_factory=dict)
    """How long it slept, like "90s", or until when."""
    waits: dict[str, str] = field(default_factory=dict)
    """The signals that it waited for, with their timeouts."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """The child tasks: `class` and `parameters`, and `queue` or `priority`."""


Children = Mapping[str, Union[Any, Exception, Callable[[dict[str, Any]], Any]]]


def run_task(
    task: Task[Any, Any],
    parameters: Any = None,
    *,
    signals: Optional[Mapping[str, Any]] = None,
    children: Optional[Children] = None,
    recorded: Optional[Mapping[str, Any]] = None,
    dependencies: Optional[Mapping[str, Any]] = None,
    task_id: int = 1,
    attempt: int = 1,
    retry_number: int = 0,
    correlation_id: Optional[str] = None,
    cancelled: bool = False,
) -> TaskRun:
    """Runs a task. What it raises is raised here.

    A step runs at once, unless `recorded` has its result. A sleep is over at once. A wait gets
    the payload from `signals`, or times out. A child has the result from `children` by its
    class: a value, an exception with which it fails, or a function of its parameters.
    """
    arguments = (task_id, attempt, retry_number, correlation_id)
    fake = _FakeEngine(signals or {}, children or {}, recorded or {})
    line = _line(task, parameters, dependencies, *arguments)
    if task.is_async:
        return asyncio.run(_run_coroutine(task, fake, line, cancelled))
    context = Context(cast(Session, fake), line)
    with fake.running(context, cancelled):
        fake.end(task.signature.call(task.function, context))
    return fake.run


async def run_task_async(
    task: Task[Any, Any],
    parameters: Any = None,
    *,
    signals: Optional[Mapping[str, Any]] = None,
    children: Optional[Children] = None,
    recorded: Optional[Mapping[str, Any]] = None,
    dependencies: Optional[Mapping[str, Any]] = None,
    task_id: int = 1,
    attempt: int = 1,
    retry_number: int = 0,
    correlation_id: Optional[str] = None,
    cancelled: bool = False,
) -> TaskRun:
    """As `run_task`, for an async task in a running event loop."""
    if not task.is_async:
        raise InvalidArgument(f"{task!r} is not async; call run_task")
    arguments = (task_id, attempt, retry_number, correlation_id)
    fake = _FakeEngine(signals or {}, children or {}, recorded or {})
    line = _line(task, parameters, dependencies, *arguments)
    return await _run_coroutine(task, fake, line, cancelled)


async def _run_coroutine(
    task: Task[Any, Any], fake: _FakeEngine, line: dict[str, Any], cancelled: bool
) -> TaskRun:
    context = AsyncContext(cast(Session, fake), line)
    with fake.running(context, cancelled):
        fake.end(await task.signature.call(task.function, context))
    return fake.run


def _line(
    task: Task[Any, Any],
    parameters: Any,
    dependencies: Optional[Mapping[str, Any]],
    task_id: int,
    attempt: int,
    retry_number: int,
    correlation_id: Optional[str],
) -> dict[str, Any]:
    return {
        "id": f"{task_id}.{attempt}",
        "task_id": task_id,
        "attempt": attempt,
        "retry_number": retry_number,
        "class": task.name,
        "correlation_id": correlation_id or str(task_id),
        "parameters": json.loads(encode({} if parameters is None else parameters)),
        "dependencies": {
            name: value
            if isinstance(value, dict) and "status" in value
            else {"id": at, "status": "stopped", "result": json.loads(encode(value))}
            for at, (name, value) in enumerate((dependencies or {}).items(), 1)
        },
    }


class _FakeEngine:
    """Takes the lines that a session takes, and answers at once."""

    is_closing = False

    def __init__(
        self, signals: Mapping[str, Any], children: Children, recorded: Mapping[str, Any]
    ) -> None:
        self.run = TaskRun()
        self._signals, self._children, self._recorded = signals, children, recorded
        self._uses: collections.Counter[str] = collections.Counter()
        self.context: Optional[BaseContext] = None

    def send_log(self, context: BaseContext) -> None:
        """They stay with the context until its end."""

    def send(self, text: str) -> None:
        line = json.loads(text)
        if "progress" in line:
            self.run.progress.append((line["progress"], line.get("message", "")))
            return
        kind = next(kind for kind in ("step", "sleep", "wait", "call") if kind in line)
        assert self.context is not None
        self.context._receive(getattr(self, f"_{kind}")(line))

    @contextmanager
    def running(self, context: BaseContext, cancelled: bool) -> Iterator[None]:
        self.context = context
        context._cancelled = cancelled
        token = _current.set(context)
        try:
            yield
        finally:
            _current.reset(token)
        self.run.logs.extend("\n".join(lines).split("\n") if (lines := context._take_log()) else [])

    def end(self, result: Any) -> None:
        line = json.loads("{" + result_line(result))
        if "error" in line:
            raise ValueError(line["error"]["message"])
        self.run.result = line["result"]

    def _name(self, name: str) -> str:
        self._uses[name] += 1
        return name if self._uses[name] == 1 else f"{name}#{self._uses[name]}"

    def _step(self, line: dict[str, Any]) -> dict[str, Any]:
        if "result" in line:
            self.run.steps[line["step"]] = line["result"]
            return {"step": line["step"], "recorded": line["result"]}
        name = self._name(line["step"])
        if name in self._recorded:
            result = json.loads(encode(self._recorded[name]))
            self.run.steps[name] = result
            return {"step": name, "recorded": result}
        return {"step": name, "run": True}

    def _sleep(self, line: dict[str, Any]) -> dict[str, Any]:
        self.run.sleeps[self._name(line["sleep"])] = line.get("for") or line["until"]
        return {"sleep": line["sleep"], "over": True}

    def _wait(self, line: dict[str, Any]) -> dict[str, Any]:
        name = self._name(line["wait"])
        self.run.waits[name] = line["timeout"]
        if name not in self._signals:
            return {"wait": name, "timed_out": True}
        return {"wait": name, "signal": json.loads(encode(self._signals[name]))}

    def _call(self, line: dict[str, Any]) -> dict[str, Any]:
        self.run.calls.extend(line["tasks"])
        results = [self._child(task_id, task) for task_id, task in enumerate(line["tasks"], 1000)]
        return {"call": line["call"], "results": results}

    def _child(self, task_id: int, task: dict[str, Any]) -> dict[str, Any]:
        name = task["class"]
        if name not in self._children:
            raise InvalidArgument(
                f"run_task needs the result of {name}: children={{{name!r}: ...}}"
            )
        given = self._children[name]
        try:
            result = given(task["parameters"]) if callable(given) else given
            if isinstance(result, Exception):
                raise result
        except Exception as error:
            if isinstance(error, ChildFailed):
                details = error.error
            else:
                details = {"exception": type(error).__name__, "message": str(error)}
            return {"task_id": task_id, "status": "failed", "error": details}
        return {"task_id": task_id, "status": "stopped", "result": json.loads(encode(result))}
