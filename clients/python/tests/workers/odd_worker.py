"""Tasks that do what tasks should not, and those of the other tests."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Optional

from task_engine import (
    AsyncContext,
    Context,
    NoRetry,
    TaskLogHandler,
    current_context,
    serve,
    task,
)

print("before serve")
logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[TaskLogHandler()])


@dataclass
class Order:
    item: str
    cents: int
    due: Optional[datetime] = None


@task("typed", retries=5, timeout="90s", queue="slow", priority=3, secret=["order.item"])
def typed(ctx: Context, order: Order, copies: int = 1) -> Any:
    return {"order": order, "copies": copies}


@task("whole")
async def whole(order: Order) -> Order:
    return order


@task("prints")
def prints() -> str:
    print("from print")
    os.write(1, b"from fd 1\n")
    sys.stdout.write("without a line end")
    subprocess.run(["echo", "from a child"], check=True)
    child = subprocess.run(["cat"], check=True, stdout=subprocess.PIPE)
    return f"{child.stdout.decode()}{sys.stdin.read()}"


@task("logs")
def logs(ctx: Context) -> None:
    logging.getLogger("shop").info("order %s", 7)
    ctx.log("two\nlines")


@task("logs_async")
async def logs_async() -> None:
    async def inner() -> None:
        logging.getLogger("shop").warning("inner")

    await asyncio.gather(inner(), asyncio.to_thread(logging.getLogger("shop").info, "thread"))
    context = current_context()
    assert context is not None
    context.log("current")


@task("not_json")
def not_json() -> Any:
    return {"a": [object()]}


@task("not_a_number")
async def not_a_number() -> Any:
    return float("nan")


@task("surrogate")
def surrogate(ctx: Context) -> str:
    ctx.log("half \ud800")
    return "half \ud800"


@task("exits")
def exits() -> None:
    sys.exit(3)


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@task("broken_error")
def broken_error() -> None:
    raise BrokenError


@task("chained")
def chained() -> None:
    try:
        raise KeyError("no such account")
    except KeyError as error:
        raise NoRetry("the account is gone") from error


@task("swallows")
def swallows(ctx: Context) -> str:
    """As badly written error handling as there is."""
    try:
        ctx.sleep("pause", "1h")
    except Exception:
        ctx.log("an error")
    finally:
        for send in (ctx.log, ctx.progress):
            try:
                send(1)
            except BaseException:
                pass
    return "never"


@task("swallows_async")
async def swallows_async(ctx: AsyncContext) -> str:
    try:
        await asyncio.gather(ctx.sleep("pause", "1h"), asyncio.sleep(0))
    except Exception:
        ctx.log("an error")
    finally:
        for send in (ctx.log, ctx.progress):
            try:
                send(1)
            except BaseException:
                pass
    return "never"


@task("until_cancelled")
def until_cancelled(ctx: Context) -> None:
    ctx.log("begun")
    ctx.wait_cancelled()
    ctx.step("after", lambda: 1)


@task("polls")
def polls(ctx: Context) -> str:
    ctx.log("begun")
    while not ctx.cancelled:
        time.sleep(0.01)
    try:
        ctx.log("too late")
    except BaseException as error:
        return f"{type(error).__name__} is an Exception: {isinstance(error, Exception)}"
    return "not cancelled"


@task("awaits")
async def awaits(ctx: AsyncContext) -> None:
    ctx.log("begun")
    try:
        await asyncio.sleep(3600)
    except Exception:
        ctx.log("caught")


@task("cleans_up")
async def cleans_up(ctx: AsyncContext) -> str:
    ctx.log("begun")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "cleaned up"
    return "never"


@task("waits_for_signal")
async def waits_for_signal(ctx: AsyncContext) -> Any:
    return await ctx.wait_for("approved", "7d")


@task("waits_for_signal_sync")
def waits_for_signal_sync(ctx: Context) -> Any:
    return ctx.wait_for("approved", "7d")


@task("parallel_steps")
async def parallel_steps(ctx: AsyncContext) -> list[Any]:
    return list(await asyncio.gather(*(ctx.step(f"step {n}", lambda n=n: n) for n in range(5))))  # type: ignore[misc]


@task("results")
def results(ctx: Context) -> list[Any]:
    return [ctx.result_of("extract", list[int]), ctx.result_of(17)]


# For tests with an engine: each effect is a line of a file.


def effect(ctx: Context, name: str) -> str:
    with open("effects.txt", "a") as file:
        file.write(f"{ctx.task_id}:{name}\n")
    return name


@task("order", retry={"first_delay": "50ms", "factor": 1.0})
def order(ctx: Context, item: str) -> str:
    reservation = ctx.step("reserve", lambda: effect(ctx, "reserve"))
    ctx.step("charge", lambda: effect(ctx, "charge"))
    ctx.log(f"pid {os.getpid()}")
    effect(ctx, "between")
    if Path("hang").exists():
        threading.Event().wait()
    approval = ctx.wait_for("approved", "7d")
    ctx.sleep("short", "10ms")
    parcels = ctx.call_all([ship.new(item=item), ship.new(item="second")])
    return f"{reservation} {approval['by']} {' '.join(parcels)}"


@task("check_result")
def check_result(ctx: Context) -> str:
    parcel: str = ctx.result_of("extract", str)
    return parcel.upper()


@task("notices_cancel", retry={"first_delay": "50ms"})
async def notices_cancel() -> str:
    if not Path("cancelled").exists():
        Path("hangs").touch()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            Path("cancelled").touch()
    return "done"


@task("waits_for_file")
def waits_for_file() -> str:
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.02)
    return "done"


@task("ship")
async def ship(item: str) -> str:
    return f"parcel of {item}"


if __name__ == "__main__":
    serve(concurrency=int(sys.argv[1]) if len(sys.argv) > 1 else 10)
