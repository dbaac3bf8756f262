"""The SQL statements. Each has one parameter, a JSON text, so every driver can run them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Optional
from uuid import uuid4

from .errors import InvalidArgument
from .flow import Flow
from .json_values import encode
from .new_task import NewTask, retry_body

# {schema} and {json} are filled in; {json} becomes the parameter of the driver.
_ARGUMENT = "CAST(CAST({json} AS text) AS jsonb)"
_ROWS = (
    "SELECT array_agg(t.class ORDER BY t.n) AS classes,"
    " array_agg(t.parameters ORDER BY t.n) AS parameters,"
    " array_agg(t.scheduled_at ORDER BY t.n) AS scheduled_ats,"
    " array_agg(t.delay ORDER BY t.n) AS delays,"
    " array_agg(t.priority ORDER BY t.n) AS priorities,"
    " array_agg(t.queue ORDER BY t.n) AS queues,"
    " array_agg(t.context ORDER BY t.n) AS contexts,"
    " array_agg(t.key ORDER BY t.n) AS keys,"
    " array_agg(t.scope ORDER BY t.n) AS scopes,"
    " array_agg(t.on_conflict ORDER BY t.n) AS on_conflicts"
    " FROM ROWS FROM (jsonb_to_recordset(" + _ARGUMENT + ") AS (class text, parameters jsonb,"
    " scheduled_at timestamptz, delay interval, priority integer, queue text, context jsonb,"
    " key text, scope text, on_conflict text)) WITH ORDINALITY AS t(class, parameters,"
    " scheduled_at, delay, priority, queue, context, key, scope, on_conflict, n)"
)
_ARRAYS = "a.classes, a.parameters, a.scheduled_ats, a.delays, a.priorities, a.queues, a.contexts"
CREATE = (
    "SELECT c.id, 'created' FROM (" + _ROWS + ") AS a"
    " CROSS JOIN LATERAL {schema}.create_tasks(" + _ARRAYS + ")"
    " WITH ORDINALITY AS c(id, place) ORDER BY c.place"
)
CREATE_UNIQUE = (
    "SELECT c.id, c.outcome FROM (" + _ROWS + ") AS a"
    " CROSS JOIN LATERAL {schema}.create_unique_tasks(" + _ARRAYS + ", a.keys, a.scopes,"
    " a.on_conflicts) WITH ORDINALITY AS c(id, outcome, place) ORDER BY c.place"
)
CREATE_FLOW = "SELECT name, task_id FROM {schema}.create_flow(" + _ARGUMENT + ")"
SIGNAL = (
    "SELECT {schema}.signal(CAST(a.j ->> 'task_id' AS bigint), a.j ->> 'name', a.j -> 'payload')"
    " FROM (SELECT " + _ARGUMENT + " AS j) AS a"
)
SIGNAL_UNIQUE = (
    "SELECT s.status FROM (SELECT " + _ARGUMENT + " AS j) AS a CROSS JOIN LATERAL"
    " {schema}.signal_unique(a.j ->> 'class', a.j ->> 'key', a.j ->> 'name', a.j -> 'payload') AS s"
)


class Statement:
    """A statement for any driver, and its argument."""

    def __init__(self, sql: str, argument: str, schema: str) -> None:
        if not re.fullmatch(r"[^\W\d]\w*", schema):
            raise InvalidArgument(f"{schema!r} is not the name of a schema, like 'task_engine'")
        self._sql = sql.replace("{schema}", f'"{schema}"')
        self.argument = argument

    def sql(self, parameter: str) -> str:
        return self._sql.replace("{json}", parameter)


def create_statement(tasks: Sequence[NewTask], schema: str) -> Statement:
    # Tasks without a key take the faster function.
    unique = any(task.key is not None for task in tasks)
    text = ",".join(task.body_text(_row(task)) for task in tasks)
    return Statement(CREATE_UNIQUE if unique else CREATE, f"[{text}]", schema)


def flow_statement(flow: Flow, schema: str) -> Statement:
    tasks = {name: task.body_text(_flow_row(task, flow, name)) for name, task in flow.tasks.items()}
    return Statement(CREATE_FLOW, flow.body_text(tasks), schema)


def flow_of_one(task: NewTask) -> Flow:
    """A task that depends on existing ones. The name is unique, because results are named by it."""
    flow = Flow(correlation_id=task.correlation_id)
    alone = task.with_options(
        after_task=(), after_task_end=(), after_task_failure=(), correlation_id=None
    )
    name = f"{task.task_class[:60]} {uuid4().hex[:12]}"
    flow.tasks[name] = alone
    flow.dependencies[name] = {field: list(ids) for field, ids in task.dependencies().items()}
    return flow


def signal_body(name: str, payload: Any, **target: Any) -> str:
    try:
        return encode({**target, "name": name, "payload": payload})
    except ValueError as error:
        raise InvalidArgument(f"the payload of the signal {name}: {error}") from error


def _row(task: NewTask) -> dict[str, Any]:
    row = task.common_body()
    if (after := task.after_text()) is not None:
        row["delay"] = _interval(after)
    if task.key is not None:
        row["key"] = task.key
        if (scope := task.scope_text()) is not None:
            row["scope"] = scope if scope in ("active", "waiting") else _interval(scope)
        if task.on_conflict is not None:
            row["on_conflict"] = task.on_conflict
    context = _context(task)
    if task.correlation_id is not None:
        context["correlation_id"] = task.correlation_id
    if context:
        row["context"] = context
    return row


def _flow_row(task: NewTask, flow: Flow, name: str) -> dict[str, Any]:
    row = task.common_body()
    if (after := task.after_text()) is not None:
        row["delay"] = _interval(after)
    # In the context: create_flow drops limits whose key is null.
    if context := _context(task):
        row["context"] = context
    return {**row, **flow.dependencies.get(name, {})}


def _context(task: NewTask) -> dict[str, Any]:
    parts: dict[str, Optional[Any]] = {
        "limits": task.limits_body(),
        "retry": None if task.retry is None else retry_body(task.retry),
        "traceparent": task.traceparent,
    }
    return {name: part for name, part in parts.items() if part is not None}


def _interval(text: str) -> str:
    """In an interval, `ms` is written out."""
    return text.replace("ms", " milliseconds") if text.endswith("ms") else f"{text[:-1]} seconds"
