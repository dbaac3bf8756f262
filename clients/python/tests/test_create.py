"""Creation in the transaction of the caller, on PostgreSQL with every driver."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any, Callable

import asyncpg
import psycopg
import psycopg.rows
import psycopg2
import pytest
import sqlalchemy as sa
from psycopg2.extras import RealDictCursor
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from task_engine import (
    Context,
    Flow,
    InvalidArgument,
    NewTask,
    ServerError,
    TaskEngineError,
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
    task,
)

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def sqlalchemy_url(url: str, driver: str) -> str:
    return url.replace("postgres://", f"postgresql+{driver}://", 1)


@contextmanager
def psycopg_connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        yield connection
        connection.rollback()


@contextmanager
def psycopg_cursor(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        yield cursor
        connection.rollback()


@contextmanager
def psycopg2_connection(url: str) -> Iterator[Any]:
    connection = psycopg2.connect(url, cursor_factory=RealDictCursor)
    yield connection
    connection.close()


@contextmanager
def psycopg2_cursor(url: str) -> Iterator[Any]:
    with psycopg2_connection(url) as connection:
        yield connection.cursor()


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = sa.create_engine(sqlalchemy_url(url, "psycopg"))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = sa.create_engine(sqlalchemy_url(url, "psycopg2"))
    with Session(engine) as session:
        yield session
    engine.dispose()


@contextmanager
def sqlalchemy_scoped_session(url: str) -> Iterator[Any]:
    engine = sa.create_engine(sqlalchemy_url(url, "psycopg"))
    session = scoped_session(sessionmaker(engine))
    yield session
    session.remove()
    engine.dispose()


@contextmanager
def django_connection(url: str) -> Iterator[Any]:
    import django
    from django.conf import settings
    from django.db import connection, transaction

    if not settings.configured:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        settings.configure(
            DATABASES={
                "default": {
                    "ENGINE": "django.db.backends.postgresql",
                    "NAME": parts["dbname"],
                    "USER": parts.get("user", ""),
                    "PASSWORD": parts.get("password", ""),
                    "HOST": parts.get("host", ""),
                    "PORT": str(parts.get("port", "")),
                }
            }
        )
        django.setup()
    with transaction.atomic():
        yield connection
        transaction.set_rollback(True)
    connection.close()


SYNCHRONOUS = [
    psycopg_connection,
    psycopg_cursor,
    psycopg2_connection,
    psycopg2_cursor,
    sqlalchemy_connection,
    sqlalchemy_session,
    sqlalchemy_scoped_session,
    django_connection,
]


def exists(url: str, task_id: int) -> bool:
    with psycopg.connect(url) as connection:
        query = "SELECT 1 FROM task_engine.tasks WHERE id = %s"
        return connection.execute(query, (task_id,)).fetchone() is not None


@pytest.mark.parametrize("connect", SYNCHRONOUS)
def test_creates_in_the_transaction(postgres: str, connect: Callable[[str], Any]) -> None:
    with connect(postgres) as connection:
        created = create(connection, "resize", {"text": "100 %s :a $1 ü"}, after="10m")
        many = create_many(connection, [NewTask("a"), NewTask("b", key=f"key {created}")])
        flow = create_flow(connection, Flow().add("x", "x").add("y", "y", after=["x", created]))
        sent = [signal(connection, created, "go", {"a": 1}), signal(connection, created, "go")]
        sent.append(signal_by_key(connection, "b", f"key {created}", "go"))
        with pytest.raises(ServerError) as refused:
            create(connection, "resize", limits={"no such limit": None})
    assert created.outcome == "created"
    assert [one.is_new for one in many] == [True, True]
    assert list(flow) == ["x", "y"]
    assert sent == ["kept", "duplicate", "kept"]
    assert refused.value.code == "23514"
    assert str(refused.value).startswith('limit "no such limit" does not exist')
    assert "\n" not in str(refused.value)
    assert not exists(postgres, created), "it was rolled back with the transaction"


def test_missing_tables_are_explained(postgres: str) -> None:
    with psycopg.connect(postgres) as connection, pytest.raises(ServerError) as refused:
        create(connection, "resize", schema="missing")
    assert refused.value.code == "3F000"
    advice = 'schema "missing" does not exist; create the tables with `task-engine migrate`'
    assert str(refused.value) == advice


async def use_asynchronously(connection: Any) -> TaskId:
    created = await create_async(connection, "resize", {"width": 80}, priority=5)
    assert (await create_many_async(connection, [NewTask("a", key="1")]))[0] > created
    flow = Flow().add("x", "x").add("y", "y", after="x")
    assert len(await create_flow_async(connection, flow)) == 2
    assert await create_async(connection, "later", after_task=created) > created
    assert await signal_async(connection, created, "go") == "kept"
    assert await signal_by_key_async(connection, "a", "1", "go") in ("kept", "duplicate")
    with pytest.raises(ServerError, match="no such limit"):
        await create_async(connection, "resize", limits=["no such limit"])
    return created


async def use_psycopg(url: str) -> TaskId:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        created = await use_asynchronously(connection)
        await connection.rollback()
        async with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            await use_asynchronously(cursor)
        await connection.rollback()
        return created


async def use_asyncpg(url: str) -> TaskId:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection:
            # As applications do, so that jsonb becomes a dict.
            await connection.set_type_codec(
                "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
            )
            transaction = connection.transaction()
            await transaction.start()
            created = await use_asynchronously(connection)
            await transaction.rollback()
        with pytest.raises(InvalidArgument, match="pass one of its connections"):
            await create_async(pool, "resize")
        return created


async def use_sqlalchemy(url: str, driver: str) -> TaskId:
    engine = create_async_engine(sqlalchemy_url(url, driver))
    async with engine.connect() as connection:
        await use_asynchronously(connection)
        await connection.rollback()
    async with AsyncSession(engine) as session:
        created = await use_asynchronously(session)
        await session.rollback()
    await engine.dispose()
    return created


def test_creates_asynchronously(postgres: str) -> None:
    assert not exists(postgres, asyncio.run(use_psycopg(postgres)))
    assert not exists(postgres, asyncio.run(use_asyncpg(postgres)))
    assert not exists(postgres, asyncio.run(use_sqlalchemy(postgres, "asyncpg")))
    assert not exists(postgres, asyncio.run(use_sqlalchemy(postgres, "psycopg")))


@pytest.fixture
def connection(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg_connection(postgres) as connection:
        yield connection


def row(connection: psycopg.Connection[Any], task_id: int) -> dict[str, Any]:
    query = "SELECT *, scheduled_at - created_at AS wait FROM task_engine.tasks WHERE id = %s"
    found: Any = connection.execute(query, (task_id,)).fetchone()
    return dict(found)


def test_every_option_is_stored(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT task_engine.set_limit('api', '{\"max\": 2}')")
    at = datetime(2030, 1, 1, 9, tzinfo=timezone.utc)
    task_id = create(
        connection,
        "resize",
        {"at": at, "wait": timedelta(minutes=2)},
        at=at,
        queue="pictures",
        priority=-5,
        limits={"api": "acme"},
        correlation_id="order 7",
        traceparent=TRACEPARENT,
        retry={"maximum": 3, "first_delay": "10s", "cap": timedelta(hours=1), "jitter": 0.5},
    )
    stored = row(connection, task_id)
    assert (stored["queue"], stored["priority"], stored["scheduled_at"]) == ("pictures", -5, at)
    assert stored["task_parameters"] == {"at": "2030-01-01T09:00:00+00:00", "wait": "120s"}
    retry = {"maximum": 3, "first_delay_ms": 10_000, "cap_ms": 3_600_000, "jitter": 0.5}
    assert stored["context"] == {
        "limits": {"api": "acme"},
        "correlation_id": "order 7",
        "traceparent": TRACEPARENT,
        "retry": retry,
    }


@pytest.mark.parametrize("after", ["90s", "1m 30s", "1.5 minutes", 90, 90.0, timedelta(seconds=90)])
def test_after_is_a_duration(connection: psycopg.Connection[Any], after: Any) -> None:
    assert row(connection, create(connection, "a", after=after))["wait"] == timedelta(seconds=90)


def test_unique_tasks_tell_their_outcome(connection: psycopg.Connection[Any]) -> None:
    first = create(connection, "index", {"n": 1}, key="k")
    kept = create(connection, "index", {"n": 2}, key="k")
    replaced = create(
        connection, "index", {"n": 3}, key="k", scope="waiting", on_conflict="replace"
    )
    assert [first, kept, replaced] == [first] * 3
    assert [t.outcome for t in (first, kept, replaced)] == ["created", "kept", "replaced"]
    assert row(connection, first)["task_parameters"] == {"n": 3}
    assert create(connection, "index", key="k", scope="1 day").outcome == "kept"
    assert create(connection, "index", key="other", scope=timedelta(days=1)).is_new


def test_task_depends_on_existing_ones(connection: psycopg.Connection[Any]) -> None:
    first, second = create_many(connection, [NewTask("a"), NewTask("b")])
    after = create(connection, "c", {"n": 1}, after_task=[first, second], after="1h", queue="q")
    alert = create(connection, "d", after_task_failure=first, after_task_end=second)
    both = create(connection, "e", after_task=[after, alert])
    query = "SELECT * FROM task_engine.task_dependencies"
    rows = connection.execute(query).fetchall()
    found = {(r["task_id"], r["depends_on"]): r["condition"] for r in rows}
    assert found[after, first] == found[after, second] == found[both, alert] == "success"
    assert (found[alert, first], found[alert, second]) == ("failure", "end")
    assert row(connection, after)["queue"] == "q"
    assert row(connection, after)["correlation_id"] == str(first)


def test_flow_is_created_with_all_options(connection: psycopg.Connection[Any]) -> None:
    connection.execute('SELECT task_engine.set_limit(\'host\', \'{"max": 2, "key": "host"}\')')
    flow = Flow("nightly", correlation_id="nightly 1")
    flow.add("extract", "extract", {"host": "a"}, limits=["host"], retry={"maximum": 0})
    flow.add("load", NewTask("load", priority=3), after="extract", delay="2h")
    flow.add("alert", "alert", after_failure=["extract", "load"], traceparent=TRACEPARENT)
    created = create_flow(connection, flow)
    assert created.correlation_id == "nightly 1"
    extract = row(connection, created["extract"])
    assert extract["context"]["limits"] == {"host": None}
    assert extract["context"]["retry"] == {"maximum": 0}
    load = row(connection, created["load"])
    assert (load["priority"], load["wait"]) == (3, timedelta(hours=2))
    assert row(connection, created["alert"])["context"]["traceparent"] == TRACEPARENT
    assert create_flow(connection, Flow().add("a", "a")).correlation_id is not None


def test_creates_many_at_once(connection: psycopg.Connection[Any]) -> None:
    created = create_many(connection, (NewTask("a", {"n": n}) for n in range(5_000)))
    assert created == sorted(created)
    assert len(set(created)) == 5_000
    assert row(connection, created[4_321])["task_parameters"] == {"n": 4_321}
    assert create_many(connection, []) == []


@task("create.resize", queue="pictures", priority=4)
def resize(ctx: Context, width: int, height: int = 10) -> None:
    """Never executed here."""


def test_decorated_task_is_created_with_its_types(connection: psycopg.Connection[Any]) -> None:
    stored = row(connection, resize.create(connection, width=80))
    assert stored["task_parameters"] == {"width": 80}
    assert (stored["queue"], stored["priority"]) == ("pictures", 4)
    later = resize.with_options(after="1h", priority=9).create(connection, 80, height=5)
    stored = row(connection, later)
    assert (stored["priority"], stored["wait"]) == (9, timedelta(hours=1))
    assert stored["task_parameters"] == {"width": 80, "height": 5}
    assert create(connection, resize, {"width": 1}, key="k").is_new
    assert create(connection, resize.new(width=1), queue="q") > later
    with pytest.raises(InvalidArgument, match="missing a required argument: 'width'"):
        resize.create(connection)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match='"width": expected a whole number, not "80"'):
        resize.create(connection, width="80")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"after": "soon"}, "'soon' is not a duration like \"30s\""),
        ({"after": "3 months"}, "is not a duration"),
        ({"after": -1}, "between 0 and 100 years"),
        ({"after": "1s", "at": "2030-01-01T00:00:00Z"}, "not both"),
        ({"at": datetime(2030, 1, 1)}, "with a time zone; write datetime.now(timezone.utc)"),
        ({"at": "tomorrow"}, "is a time like"),
        ({"priority": "high"}, "priority is a whole number like 5, not 'high'"),
        ({"queue": ""}, "queue is a text of 1 to 200 bytes"),
        ({"scope": "waiting"}, "need a unique key"),
        ({"key": "k", "scope": "waitin"}, 'scope is "active", "waiting" or a duration'),
        ({"key": "k", "on_conflict": "replac"}, "did you mean 'replace'?"),
        ({"key": "k", "after_task": 1}, "cannot have a unique key"),
        ({"after_task": "extract"}, "after_task is the id of a task"),
        ({"limits": "api"}, "write limits=['api']"),
        ({"limits": list("abcd")}, "at most 3 limits, not 4"),
        ({"traceparent": "x"}, "is not a traceparent"),
        ({"retry": {"maximun": 1}}, "did you mean 'maximum'?"),
        ({"retry": {"maximum": "1"}}, "is a whole number"),
        ({"prioritty": 1}, "no option 'prioritty'; did you mean 'priority'?"),
        ({"parameters": [1]}, "are not an object"),
        ({"parameters": {"a": float("inf")}}, "NaN and infinity are not JSON"),
        ({"parameters": {"a": object()}}, "a value of the type builtins.object is not JSON"),
        ({"parameters": {"a": "\0"}}, "encode binary data as base64"),
        ({"schema": 'x"; DROP'}, "is not the name of a schema"),
    ],
)
def test_wrong_arguments_are_not_sent(options: dict[str, Any], message: str) -> None:
    class Refuses(psycopg.Connection[Any]):
        def __init__(self) -> None:
            pass

        def cursor(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("something was sent")

        def __del__(self, *_: Any, **__: Any) -> None:
            pass

    with pytest.raises(InvalidArgument) as refused:
        create(Refuses(), "resize", **options)
    assert message in str(refused.value)
    assert isinstance(refused.value, TaskEngineError)


def test_escaped_backslash_is_no_zero_character(connection: psycopg.Connection[Any]) -> None:
    stored = row(connection, create(connection, "a", {"a": "\\u0000"}))
    assert stored["task_parameters"] == {"a": "\\u0000"}


def test_wrong_flows_are_not_sent() -> None:
    flow = Flow().add("extract", "extract")
    for add, message in (
        (lambda: flow.add("extract", "a"), "two tasks of the flow have the name 'extract'"),
        (lambda: flow.add("a", "a", key="k"), "depend on its id"),
        (lambda: flow.add("a", "a", correlation_id="x"), "pass it to Flow"),
        (lambda: create_flow(None, Flow().add("a", "a", after="b")), "which is no task"),
        (lambda: create_flow(None, flow.add("load", "load", after="extrat")), "did you mean"),
        (lambda: create_flow(None, Flow()), "a flow needs a task"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            add()


def test_wrong_connections_are_explained(postgres: str) -> None:
    import sqlite3

    engine = sa.create_engine(sqlalchemy_url(postgres, "psycopg"))
    with sqlite3.connect(":memory:") as sqlite, Session(engine) as session:
        for wrong, message in (
            (engine, "pass one of its connections"),
            (sqlite, "created with HttpClient"),
            (postgres, "pass a connection of psycopg"),
        ):
            with pytest.raises(InvalidArgument, match=message):
                create(wrong, "a")
        with pytest.raises(InvalidArgument, match=r"call create\(...\)"):
            asyncio.run(create_async(session, "a"))

    async def asynchronous() -> None:
        async with await psycopg.AsyncConnection.connect(postgres) as connection:
            with pytest.raises(InvalidArgument, match="await create_async"):
                create(connection, "a")

    asyncio.run(asynchronous())
    sqlite.close()
    engine.dispose()


def test_task_id_is_a_number() -> None:
    task_id = TaskId(17, "kept")
    assert (task_id == 17, str(task_id), json.dumps(task_id)) == (True, "17", "17")
    again = pickle.loads(pickle.dumps(task_id))
    assert (again, again.outcome, again.is_new) == (17, "kept", False)
