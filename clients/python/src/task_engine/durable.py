"""The requests of durable calls, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Callable, NamedTuple, Optional, Union

from .durations import Duration, duration_text, milliseconds
from .errors import ChildFailed, InvalidArgument, NoRetry, WaitTimedOut
from .flow import as_new_task
from .json_values import encode, encode_text
from .new_task import NewTask, time_text
from .parameters import reader_of

MISSING: Any = object()


class Request(NamedTuple):
    """A line to the engine, and what its answer means."""

    kind: str
    line: str
    read: Callable[[dict[str, Any]], Any] = lambda answer: answer


def named(kind: str, name: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name.encode("utf-8", "replace")) <= 200:
        raise InvalidArgument(f"the name of a {kind} is a text of 1 to 200 bytes, not {name!r}")
    return f'"{kind}":{encode_text(name)}}}'


def step(name: str) -> Request:
    return Request("step", named("step", name))


def step_result(name: str, result: Any) -> Request:
    try:
        line = f'"step":{encode_text(name)},"result":{encode(result)}}}'
    except ValueError as error:
        raise NoRetry(f"the result of the step {name} is not JSON: {error}") from error
    return Request("step", line)


def sleep(name: str, duration: Optional[Duration], until: Optional[datetime]) -> Request:
    if (duration is None) == (until is None):
        raise InvalidArgument('write sleep("pause", "3d") or sleep("pause", until=time)')
    head = named("sleep", name)[:-1]
    if until is not None:
        return Request("sleep", f'{head},"until":{encode(time_text("until", until))}}}')
    return Request("sleep", f'{head},"for":{encode(duration_text(duration or 0))}}}')


def wait(name: str, timeout: Duration, type: Any, default: Any) -> Request:
    def payload(answer: dict[str, Any]) -> Any:
        if answer.get("timed_out"):
            if default is MISSING:
                raise WaitTimedOut(name)
            return default
        return read(answer.get("signal"), type, f"the signal {name}")

    line = f'{named("wait", name)[:-1]},"timeout":{encode(duration_text(timeout))}}}'
    return Request("wait", line, payload)


def child(
    task: Any,
    parameters: Any = None,
    queue: Optional[str] = None,
    priority: Optional[int] = None,
) -> NewTask:
    options = {"queue": queue, "priority": priority}
    new = as_new_task(task, parameters, {k: v for k, v in options.items() if v is not None})
    only = NewTask(new.task_class, new.parameters, queue=new.queue, priority=new.priority)
    if new != only:
        raise InvalidArgument("a child task has only the options queue and priority")
    return new


def call(
    children: Sequence[NewTask], name: Optional[str], type: Any, return_exceptions: bool = False
) -> Request:
    head = named("call", name or children[0].task_class)[:-1]
    tasks = ",".join(child.body_text(child.common_body()) for child in children)
    return Request(
        "call",
        f'{head},"tasks":[{tasks}]}}',
        lambda answer: _child_results(answer["results"], type, return_exceptions),
    )


def _child_results(results: list[dict[str, Any]], type: Any, return_exceptions: bool) -> list[Any]:
    read_all: list[Any] = []
    for result in results:
        if result.get("status") == "stopped" or "result" in result:
            where = f"the result of task {result.get('task_id')}"
            read_all.append(read(result.get("result"), type, where))
            continue
        error = result.get("error")
        details = error if isinstance(error, dict) else {"message": error}
        failed = ChildFailed(result.get("task_id", 0), str(result.get("status")), details)
        if not return_exceptions:
            raise failed
        read_all.append(failed)
    return read_all


def read(value: Any, type: Any, what: str) -> Any:
    return value if type is Any else reader_of(type)(value, what)


def seconds(duration: Union[Duration]) -> float:
    return milliseconds(duration) / 1000
