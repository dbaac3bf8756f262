"""`task_engine.testing`: tasks without an engine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from task_engine import (
    AsyncContext,
    ChildFailed,
    Context,
    InvalidArgument,
    InvalidParameters,
    NoRetry,
    TaskCancelled,
    WaitTimedOut,
    task,
)
from task_engine.testing import run_task, run_task_async


@dataclass
class Approval:
    by: str


@task("testing.ship")
def ship(item: str) -> str:
    return item


@task("testing.order")
def order(ctx: Context, item: str) -> Any:
    ctx.log("begin\nof the order")
    ctx.progress(50, "half")
    first = ctx.step("charge", lambda: 1)
    second = ctx.step("charge", lambda: first + 1)
    approval = ctx.wait_for("approved", "7d", type=Approval)
    ctx.sleep("cooling off", "3d")
    try:
        parcel = ctx.call(ship.new(item=item), queue="q")
    except ChildFailed as error:
        return str(error)
    return [approval, second, parcel, ctx.call_all([ship.new(item="a"), ship.new(item="b")])]


@task("testing.order_async")
async def order_async(ctx: AsyncContext, item: str) -> Any:
    ctx.log("begin")
    ctx.progress(50)

    async def charge() -> int:
        return 1

    paid = await ctx.step("charge", charge)
    answer = await ctx.wait_for("approved", 60, default={"by": "nobody"})
    await ctx.sleep("cooling off", "3d")
    results = await ctx.call_all(["a", ship.new(item=item)], return_exceptions=True)
    return {"paid": paid, "answer": answer, "results": [str(result) for result in results]}


def test_records_what_a_task_does() -> None:
    children = {"testing.ship": lambda parameters: f"parcel of {parameters['item']}"}
    signals = {"approved": Approval("ada")}
    run = run_task(order, {"item": "book"}, signals=signals, children=children)
    parcels = ["parcel of a", "parcel of b"]
    assert run.result == [{"by": "ada"}, 2, "parcel of book", parcels]
    assert run.logs == ["begin", "of the order"]
    assert run.progress == [(50.0, "half")]
    assert run.steps == {"charge": 1, "charge#2": 2}
    assert run.waits == {"approved": "604800s"}
    assert run.sleeps == {"cooling off": "259200s"}
    assert run.calls[0] == {
        "class": "testing.ship",
        "parameters": {"item": "book"},
        "queue": "q",
    }


def test_runs_an_async_task() -> None:
    children = {"a": ValueError("no"), "testing.ship": 1}
    run = run_task(order_async, {"item": "book"}, children=children, recorded={"charge": 7})
    results = ["task 1000 failed: ValueError: no", "1"]
    assert run.result == {"paid": 7, "answer": {"by": "nobody"}, "results": results}
    again = asyncio.run(run_task_async(order_async, {"item": "book"}, children=children))
    assert again.result["paid"] == 1
    assert again.logs == ["begin"]


def test_failures_are_raised() -> None:
    with pytest.raises(WaitTimedOut, match="approved did not arrive"):
        run_task(order, {"item": "book"})
    with pytest.raises(InvalidParameters, match="item"):
        run_task(order, {"itm": "book"})
    with pytest.raises(TaskCancelled):
        run_task(order, {"item": "book"}, cancelled=True)
    signals = {"approved": {"by": "ada"}}
    failed = run_task(
        order, {"item": "a"}, signals=signals, children={"testing.ship": NoRetry("gone")}
    )
    assert failed.result == "task 1000 failed: NoRetry: gone"
    with pytest.raises(InvalidArgument, match="run_task needs the result of testing.ship"):
        run_task(order, {"item": "a"}, signals=signals)
    with pytest.raises(InvalidParameters, match="approved"):
        run_task(order, {"item": "a"}, signals={"approved": 1})


@task("testing.odd")
def odd(ctx: Context, kind: str) -> Any:
    if kind == "result":
        return object()
    if kind == "dependencies":
        return [ctx.result_of("a"), ctx.result_of(2, list[int]), ctx.attempt, ctx.correlation_id]
    if kind == "name":
        return ctx.step("", lambda: 1)
    if kind == "sleep":
        return ctx.sleep("pause")
    return ctx.call(ship.new(item="a").with_options(after="1s"))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("result", "is not JSON"),
        ("name", "the name of a step is a text of 1 to 200 bytes"),
        ("sleep", 'write sleep\\("pause", "3d"\\)'),
        ("child", "only the options queue and priority"),
    ],
)
def test_mistakes_are_explained(kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_task(odd, {"kind": kind})


def test_attempt_is_as_given() -> None:
    given = {"a": 1, "b": [2]}
    run = run_task(odd, {"kind": "dependencies"}, dependencies=given, attempt=3)
    assert run.result == [1, [2], 3, "1"]
