"""Flows: tasks that depend on each other, created in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union

from .errors import InvalidArgument
from .json_values import encode
from .new_task import NewTask
from .suggest import did_you_mean

Targets = Union[str, int, Iterable[Union[str, int]]]

_MOST = 10_000


class Flow:
    """Tasks by name. Each may start after others of the flow, or after existing tasks."""

    def __init__(self, name: Optional[str] = None, *, correlation_id: Optional[str] = None) -> None:
        self.name = name
        self.correlation_id = correlation_id
        self.tasks: dict[str, NewTask] = {}
        self.dependencies: dict[str, dict[str, list[Union[str, int]]]] = {}

    def add(
        self,
        name: str,
        task: Union[str, NewTask],
        parameters: Any = None,
        *,
        after: Targets = (),
        after_end: Targets = (),
        after_failure: Targets = (),
        delay: Any = None,
        **options: Any,
    ) -> Flow:
        """Adds a task. `after`, `after_end` and `after_failure` are names of tasks of the flow,
        or ids of existing tasks; `delay` is the time after which it may start."""
        if name in self.tasks:
            raise InvalidArgument(f"two tasks of the flow have the name {name!r}")
        if not isinstance(name, str) or not 1 <= len(name.encode()) <= 200:
            raise InvalidArgument(f"the name of a task in a flow has 1 to 200 bytes, not {name!r}")
        for option in ("correlation_id", "key", "after_task", "after_task_end"):
            if option in options:
                raise InvalidArgument(f"a task of a flow has no {option}; {_INSTEAD[option]}")
        new = as_new_task(task, parameters, {**options, "after": delay} if delay else options)
        if new.key is not None:
            raise InvalidArgument(f"task {name!r} has a unique key; {_INSTEAD['key']}")
        self.tasks[name] = new
        fields = {"after": after, "after_end": after_end, "after_failure": after_failure}
        self.dependencies[name] = {
            field: [targets] if isinstance(targets, (str, int)) else list(targets)
            for field, targets in fields.items()
        }
        return self

    def check(self) -> None:
        """Finds what the server would refuse, with a hint."""
        if not self.tasks:
            raise InvalidArgument("a flow needs a task; call flow.add(...)")
        if len(self.tasks) > _MOST:
            raise InvalidArgument(f"a flow has at most {_MOST} tasks, not {len(self.tasks)}")
        for name, fields in self.dependencies.items():
            for target in (target for targets in fields.values() for target in targets):
                if isinstance(target, str) and target not in self.tasks:
                    raise InvalidArgument(
                        f"task {name!r} depends on {target!r}, which is no task of the flow"
                        f"{did_you_mean(target, self.tasks)}"
                    )
                if isinstance(target, bool) or not isinstance(target, (str, int)):
                    raise InvalidArgument(
                        f"task {name!r} depends on {target!r}; "
                        "write the name of a task, or the id of an existing one"
                    )

    def body_text(self, tasks: Mapping[str, str]) -> str:
        """The flow as JSON, with its tasks as JSON."""
        self.check()
        head = {"name": self.name, "correlation_id": self.correlation_id}
        fields = [f'"{key}":{encode(value)}' for key, value in head.items() if value is not None]
        listed = ",".join(f"{encode(name)}:{text}" for name, text in tasks.items())
        return "{" + ",".join([*fields, f'"tasks":{{{listed}}}']) + "}"


_INSTEAD = {
    "correlation_id": "pass it to Flow(correlation_id=...)",
    "key": "create the unique task before, and depend on its id",
    "after_task": "write after=17",
    "after_task_end": "write after_end=17",
}


class CreatedFlow(dict[str, int]):
    """The ids of the tasks by name."""

    def __init__(self, ids: Mapping[str, int], correlation_id: Optional[str]) -> None:
        super().__init__(ids)
        self.correlation_id = correlation_id
        """None if the flow took it from an existing task that it depends on."""


def as_new_task(task: Any, parameters: Any, options: Mapping[str, Any]) -> NewTask:
    """The task of a class name, a decorated function or a NewTask, with these options."""
    if isinstance(task, NewTask):
        if parameters is not None:
            raise InvalidArgument("this task has parameters already; leave out the second argument")
        return task.with_options(**options)
    if hasattr(task, "new_task"):  # a decorated function
        made: NewTask = task.new_task(parameters)
        return made.with_options(**options)
    return NewTask(task, parameters).with_options(**options)
