"""Creates tasks on the connection of the caller, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Union
from uuid import uuid4

from . import statements
from .drivers import Rows, run, run_async
from .errors import InvalidArgument
from .flow import CreatedFlow, Flow, as_new_task
from .new_task import NewTask

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .new_task import TaskOptions
    from .tasks import Task

__all__ = [
    "TaskId",
    "create",
    "create_async",
    "create_flow",
    "create_flow_async",
    "create_many",
    "create_many_async",
    "signal",
    "signal_async",
    "signal_by_key",
    "signal_by_key_async",
]

SCHEMA = "task_engine"

AnyTask = Union[str, NewTask, "Task[Any, Any]"]


class TaskId(int):
    """The id of a task: a number that also says what became of the creation."""

    outcome: str
    """"created"; of a unique task also "kept" or "replaced"."""

    def __new__(cls, value: int, outcome: str = "created") -> TaskId:
        made = super().__new__(cls, value)
        made.outcome = outcome
        return made

    @property
    def is_new(self) -> bool:
        return self.outcome == "created"

    def __getnewargs__(self) -> tuple[int, str]:  # type: ignore[override]
        return (int(self), self.outcome)


def create(
    connection: Any,
    task: AnyTask,
    parameters: Any = None,
    *,
    schema: str = SCHEMA,
    **options: Unpack[TaskOptions],
) -> TaskId:
    """Creates a task: `create(connection, "resize", {"width": 80}, after="10m")`.

    The options are the fields of `NewTask`.
    """
    new = as_new_task(task, parameters, options)
    if any(new.dependencies().values()):
        (task_id,) = create_flow(connection, statements.flow_of_one(new), schema=schema).values()
        return TaskId(task_id)
    return create_many(connection, [new], schema=schema)[0]


async def create_async(
    connection: Any,
    task: AnyTask,
    parameters: Any = None,
    *,
    schema: str = SCHEMA,
    **options: Unpack[TaskOptions],
) -> TaskId:
    """As `create`, on an asynchronous connection."""
    new = as_new_task(task, parameters, options)
    if any(new.dependencies().values()):
        flow = statements.flow_of_one(new)
        (task_id,) = (await create_flow_async(connection, flow, schema=schema)).values()
        return TaskId(task_id)
    return (await create_many_async(connection, [new], schema=schema))[0]


def create_many(connection: Any, tasks: Iterable[NewTask], *, schema: str = SCHEMA) -> list[TaskId]:
    """Creates all of them or none, in one statement."""
    several = _checked(tasks)
    if not several:
        return []
    return _ids(run(connection, statements.create_statement(several, schema)))


async def create_many_async(
    connection: Any, tasks: Iterable[NewTask], *, schema: str = SCHEMA
) -> list[TaskId]:
    """As `create_many`, on an asynchronous connection."""
    several = _checked(tasks)
    if not several:
        return []
    return _ids(await run_async(connection, statements.create_statement(several, schema)))


def create_flow(connection: Any, flow: Flow, *, schema: str = SCHEMA) -> CreatedFlow:
    """Creates the tasks of a flow, all or none."""
    flow = with_correlation(flow)
    rows = run(connection, statements.flow_statement(flow, schema))
    return CreatedFlow({name: TaskId(task_id) for name, task_id in rows}, flow.correlation_id)


async def create_flow_async(connection: Any, flow: Flow, *, schema: str = SCHEMA) -> CreatedFlow:
    """As `create_flow`, on an asynchronous connection."""
    flow = with_correlation(flow)
    rows = await run_async(connection, statements.flow_statement(flow, schema))
    return CreatedFlow({name: TaskId(task_id) for name, task_id in rows}, flow.correlation_id)


def signal(
    connection: Any, task_id: int, name: str, payload: Any = None, *, schema: str = SCHEMA
) -> str:
    """Sends a signal to a task. Returns "delivered" or "kept"; or, if it was refused,
    "duplicate", "timed_out", "task_ended" or "not_found"."""
    return str(run(connection, _signal(task_id, name, payload, schema))[0][0])


async def signal_async(
    connection: Any, task_id: int, name: str, payload: Any = None, *, schema: str = SCHEMA
) -> str:
    """As `signal`, on an asynchronous connection."""
    return str((await run_async(connection, _signal(task_id, name, payload, schema)))[0][0])


def signal_by_key(
    connection: Any,
    task_class: str,
    key: str,
    name: str,
    payload: Any = None,
    *,
    schema: str = SCHEMA,
) -> str:
    """Sends a signal to the task that was created last with this class and unique key."""
    body = statements.signal_body(name, payload, **{"class": task_class, "key": key})
    return str(run(connection, statements.Statement(statements.SIGNAL_UNIQUE, body, schema))[0][0])


async def signal_by_key_async(
    connection: Any,
    task_class: str,
    key: str,
    name: str,
    payload: Any = None,
    *,
    schema: str = SCHEMA,
) -> str:
    """As `signal_by_key`, on an asynchronous connection."""
    body = statements.signal_body(name, payload, **{"class": task_class, "key": key})
    statement = statements.Statement(statements.SIGNAL_UNIQUE, body, schema)
    return str((await run_async(connection, statement))[0][0])


def _signal(task_id: int, name: str, payload: Any, schema: str) -> statements.Statement:
    body = statements.signal_body(name, payload, task_id=task_id)
    return statements.Statement(statements.SIGNAL, body, schema)


def with_correlation(flow: Flow) -> Flow:
    """The flow with a correlation id, unless it takes that of an existing task."""
    targets = (t for fields in flow.dependencies.values() for ids in fields.values() for t in ids)
    if flow.correlation_id is not None or any(isinstance(target, int) for target in targets):
        return flow
    named = Flow(flow.name, correlation_id=str(uuid4()))
    named.tasks, named.dependencies = flow.tasks, flow.dependencies
    return named


def _checked(tasks: Iterable[NewTask]) -> Sequence[NewTask]:
    several = list(tasks)
    for task in several:
        if not isinstance(task, NewTask):
            raise InvalidArgument(
                f"create_many takes NewTask('resize', {{...}}) or resize.new(...), not {task!r}"
            )
        if any(task.dependencies().values()):
            raise InvalidArgument(
                "create_many takes no tasks that depend on others; create a Flow, or call create"
            )
    return several


def _ids(rows: Rows) -> list[TaskId]:
    return [TaskId(task_id, outcome) for task_id, outcome in rows]
