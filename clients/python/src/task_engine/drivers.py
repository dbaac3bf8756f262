"""Runs a statement on the connection of the caller, with the driver that it belongs to.

No driver is imported. The classes of the connection say which one it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Optional

from .errors import InvalidArgument, ServerError
from .statements import Statement

Rows = list[tuple[Any, ...]]

_SUPPORTED = (
    "a connection of psycopg, psycopg2, SQLAlchemy or Django; "
    "or with the functions that end with _async, of psycopg, asyncpg or SQLAlchemy"
)

_SYNCHRONOUS = {"psycopg.Connection", "psycopg.Cursor", "psycopg2.connection", "psycopg2.cursor"}
_SYNCHRONOUS |= {"sqlalchemy.Connection", "sqlalchemy.Session", "sqlalchemy.scoped_session"}
_SYNCHRONOUS |= {"django.ConnectionProxy", "django.BaseDatabaseWrapper"}
_ASYNCHRONOUS = {"psycopg.AsyncConnection", "psycopg.AsyncCursor", "asyncpg.Connection"}
_ASYNCHRONOUS |= {"asyncpg.PoolConnectionProxy", "sqlalchemy.AsyncConnection"}
_ASYNCHRONOUS |= {"sqlalchemy.AsyncSession", "sqlalchemy.async_scoped_session"}

# Invalid schema name, and undefined table.
_NOT_MIGRATED = {"3F000", "42P01"}


def run(connection: Any, statement: Statement) -> Rows:
    """Runs it, and returns all rows as tuples."""
    try:
        return _run(connection, statement)
    except Exception as error:
        raise _server_error(error) from error


async def run_async(connection: Any, statement: Statement) -> Rows:
    try:
        return await _run_async(connection, statement)
    except Exception as error:
        raise _server_error(error) from error


def _run(connection: Any, statement: Statement) -> Rows:
    kinds = _kinds(connection)
    if "psycopg.Connection" in kinds or "psycopg.Cursor" in kinds:
        # A cursor of our own: that of the caller may have another row factory, and results.
        owner = connection.connection if "psycopg.Cursor" in kinds else connection
        with owner.cursor(row_factory=sys.modules["psycopg"].rows.tuple_row) as cursor:
            cursor.execute(statement.sql("%s"), (statement.argument,))
            return list(cursor.fetchall())
    if "psycopg2.connection" in kinds or "psycopg2.cursor" in kinds:
        owner = connection.connection if "psycopg2.cursor" in kinds else connection
        plain = sys.modules["psycopg2.extensions"].cursor
        with owner.cursor(cursor_factory=plain) as cursor:
            cursor.execute(statement.sql("%s"), (statement.argument,))
            return list(cursor.fetchall())
    if kinds & {"sqlalchemy.Connection", "sqlalchemy.Session", "sqlalchemy.scoped_session"}:
        text = sys.modules["sqlalchemy"].text(statement.sql(":json"))
        return _tuples(connection.execute(text, {"json": statement.argument}))
    if kinds & {"django.ConnectionProxy", "django.BaseDatabaseWrapper"}:
        if connection.vendor != "postgresql":
            raise InvalidArgument(
                f"this connection of Django is to {connection.vendor}; tasks are created on "
                'PostgreSQL. Choose it: django.db.connections["name"], or use HttpClient'
            )
        with connection.cursor() as cursor:
            cursor.execute(statement.sql("%s"), [statement.argument])
            return _tuples(cursor.fetchall())
    raise _unsupported(connection, kinds, is_async=False)


async def _run_async(connection: Any, statement: Statement) -> Rows:
    kinds = _kinds(connection)
    if "psycopg.AsyncConnection" in kinds or "psycopg.AsyncCursor" in kinds:
        owner = connection.connection if "psycopg.AsyncCursor" in kinds else connection
        async with owner.cursor(row_factory=sys.modules["psycopg"].rows.tuple_row) as cursor:
            await cursor.execute(statement.sql("%s"), (statement.argument,))
            return list(await cursor.fetchall())
    if kinds & {"asyncpg.Connection", "asyncpg.PoolConnectionProxy"}:
        return [
            tuple(row) for row in await connection.fetch(statement.sql("$1"), statement.argument)
        ]
    if kinds & {
        "sqlalchemy.AsyncConnection",
        "sqlalchemy.AsyncSession",
        "sqlalchemy.async_scoped_session",
    }:
        text = sys.modules["sqlalchemy"].text(statement.sql(":json"))
        return _tuples(await connection.execute(text, {"json": statement.argument}))
    raise _unsupported(connection, kinds, is_async=True)


def _tuples(rows: Any) -> Rows:
    return [tuple(row) for row in rows]


def _kinds(connection: Any) -> set[str]:
    """Its class and all that it inherits from, each with the name of its package."""
    return {
        f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(connection).__mro__
    }


def _unsupported(connection: Any, kinds: set[str], is_async: bool) -> InvalidArgument:
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    advice = f"pass {_SUPPORTED}"
    if any(kind.endswith(("Engine", "Pool", "sessionmaker", "ConnectionPool")) for kind in kinds):
        advice = "pass one of its connections, in a transaction: that is where the task is created"
    elif kinds & {"sqlite3.Connection", "sqlite3.Cursor"}:
        advice = "tasks in SQLite are created with HttpClient or `task-engine create`"
    elif not is_async and kinds & _ASYNCHRONOUS:
        advice = "it is asynchronous: await create_async(...) instead of create(...)"
    elif is_async and kinds & _SYNCHRONOUS:
        advice = "it is not asynchronous: call create(...) instead of create_async(...)"
    return InvalidArgument(f"{name} is not a connection that tasks can be created on; {advice}")


def _server_error(error: Exception) -> Exception:
    """The error with the SQLSTATE and the message of the server, or itself if it has none."""
    found: Optional[BaseException] = error
    for _ in range(5):
        if found is None:
            break
        code = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
        if isinstance(code, str):
            diagnostics = getattr(found, "diag", None)
            said: Sequence[Any] = (
                getattr(diagnostics, "message_primary", None),
                getattr(found, "message", None),
                found,
            )
            advice = (
                "; create the tables with `task-engine migrate`" if code in _NOT_MIGRATED else ""
            )
            return ServerError(f"{next(text for text in said if text)}{advice}", code)
        found = getattr(found, "orig", None) or found.__cause__
    return error
