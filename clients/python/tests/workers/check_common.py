"""Classes of `task-engine check --worker` that are the same for functions and coroutines."""

from __future__ import annotations

import os
from typing import Any

from task_engine import Context, NoRetry, RateLimited, RetryAfter, Snooze, task


@task("check.dependencies")
def dependencies(ctx: Context) -> dict[str, Any]:
    return ctx.dependencies


@task("check.fail")
def fail(message: str, **_: Any) -> None:
    raise ValueError(message)


@task("check.fail_for_good")
def fail_for_good(message: str, **_: Any) -> None:
    raise NoRetry(message)


@task("check.fail_later")
def fail_later(message: str, time: str) -> None:
    raise RetryAfter(time, message)


@task("check.snooze")
def snooze(message: str, time: str) -> None:
    raise Snooze(time, message)


@task("check.rate_limited")
def rate_limited(message: str, time: str) -> None:
    raise RateLimited(time, message)


@task("check.print")
def print_text(text: str) -> None:
    print(text)


@task("check.progress")
def progress(ctx: Context, percent: float, message: str) -> None:
    ctx.progress(percent, message)


@task("check.info")
def info(ctx: Context) -> dict[str, Any]:
    return {
        "task_id": ctx.task_id,
        "attempt": ctx.attempt,
        "retry_number": ctx.retry_number,
        "class": ctx.task_class,
        "correlation_id": ctx.correlation_id,
    }


@task("check.exit")
def exit_process(code: int) -> None:
    os._exit(code)
