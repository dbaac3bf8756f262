"""The same as check_worker.py, as coroutines."""

from __future__ import annotations

from typing import Any

import check_common  # noqa: F401

from task_engine import AsyncContext, ChildFailed, serve, task


@task("check.echo")
async def echo(value: Any) -> Any:
    return value


@task("check.log")
async def log(ctx: AsyncContext, lines: int) -> int:
    for number in range(1, lines + 1):
        ctx.log(f"line {number}")
    return lines


@task("check.wait_for_cancel")
async def wait_for_cancel(ctx: AsyncContext) -> str:
    await ctx.wait_cancelled()
    return "cancelled"


@task("check.step")
async def step(ctx: AsyncContext, values: list[Any]) -> list[Any]:
    async def itself(value: Any) -> Any:
        return value

    return [await ctx.step("value", lambda value=value: itself(value)) for value in values]  # type: ignore[misc]


@task("check.sleep")
async def sleep(ctx: AsyncContext, time: str) -> str:
    try:
        await ctx.sleep("pause", time)
    except Exception as error:
        ctx.log(f"caught {error}")
    return "awake"


@task("check.wait")
async def wait(ctx: AsyncContext, timeout: str) -> Any:
    return await ctx.wait_for("approved", timeout, default="timed out")


@task("check.call")
async def call(ctx: AsyncContext, parameters: dict[str, Any], **other: Any) -> Any:
    try:
        return await ctx.call(other["class"], parameters)
    except ChildFailed as error:
        return f"failed: {error.message}"


if __name__ == "__main__":
    serve()
