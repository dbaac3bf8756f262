"""All classes of the check, as functions: task-engine check --worker 'python3 check_worker.py'"""

from __future__ import annotations

from typing import Any

import check_common  # noqa: F401

from task_engine import ChildFailed, Context, WaitTimedOut, serve, task


@task("check.echo")
def echo(value: Any) -> Any:
    return value


@task("check.log")
def log(ctx: Context, lines: int) -> int:
    for number in range(1, lines + 1):
        ctx.log(f"line {number}")
    return lines


@task("check.wait_for_cancel")
def wait_for_cancel(ctx: Context) -> str:
    ctx.wait_cancelled()
    return "cancelled"


@task("check.step")
def step(ctx: Context, values: list[Any]) -> list[Any]:
    return [ctx.step("value", lambda value=value: value) for value in values]  # type: ignore[misc]


@task("check.sleep")
def sleep(ctx: Context, time: str) -> str:
    try:
        ctx.sleep("pause", time)
    except Exception as error:
        ctx.log(f"caught {error}")
    return "awake"


@task("check.wait")
def wait(ctx: Context, timeout: str) -> Any:
    try:
        return ctx.wait_for("approved", timeout)
    except WaitTimedOut:
        return "timed out"


@task("check.call")
def call(ctx: Context, parameters: dict[str, Any], **other: Any) -> Any:
    try:
        return ctx.call(other["class"], parameters)
    except ChildFailed as error:
        return f"failed: {error.message}"


if __name__ == "__main__":
    serve()
