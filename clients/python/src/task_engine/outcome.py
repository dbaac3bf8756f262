"""The answer of an attempt: its result, or the error of its exception."""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING, Any, Optional

from .errors import (
    AttemptEnded,
    InvalidParameters,
    NoRetry,
    RateLimited,
    RetryAfter,
    Snooze,
)
from .json_values import encode, encode_text

if TYPE_CHECKING:
    from .context import BaseContext

_HERE = os.path.dirname(os.path.abspath(__file__))
_MESSAGE_CHARS = 10_000
_BACKTRACE_CHARS = 20_000


def result_line(result: Any) -> str:
    """The answer of a function that has returned this."""
    if result is None:
        return '"result":null}'
    try:
        return f'"result":{encode(result)}}}'
    except ValueError as error:
        kind = type(result).__name__
        return _error(
            "InvalidResult", f"the result (of type {kind}) is not JSON: {error}", [], False
        )


def failure_line(error: BaseException, context: BaseContext) -> Optional[str]:
    """The answer of a function that has raised this; None if there is none to send."""
    if isinstance(error, AttemptEnded):
        # Raised by the engine, or late: the attempt has ended for the engine.
        return None
    if context.cancelled and not isinstance(error, Exception):
        message = "the task was cancelled, or its time is over"
        return _error("TaskCancelled", message, [], None)
    text = _text(error)
    if isinstance(error, Snooze):
        kind = "rate_limited" if isinstance(error, RateLimited) else "snooze"
        said = f',"message":{encode_text(text[:_MESSAGE_CHARS])}' if text else ""
        return f'"{kind}":{encode(error.time)}{said}}}'
    if isinstance(error, InvalidParameters):
        return _error("InvalidParameters", text, [], False)
    retry: Any = None
    if isinstance(error, NoRetry):
        retry = False
    elif isinstance(error, RetryAfter):
        retry = error.time
    return _error(type(error).__name__, text, _backtrace(error), retry)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"(its __str__ raises {type(broken).__name__})"


def _error(exception: str, message: str, backtrace: list[str], retry: Any) -> str:
    fields = [
        f'"exception":{encode_text(exception)}',
        f'"message":{encode_text(message[:_MESSAGE_CHARS])}',
    ]
    if backtrace:
        fields.append(f'"backtrace":[{",".join(encode_text(line) for line in backtrace)}]')
    rule = "" if retry is None else f',"retry":{encode(retry)}'
    return f'"error":{{{",".join(fields)}}}{rule}}}'


def _backtrace(error: BaseException) -> list[str]:
    trace = error.__traceback__
    # The frames of this library, which called the function, say nothing.
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:
        text = type(error).__name__
    if len(text) > _BACKTRACE_CHARS:
        half = _BACKTRACE_CHARS // 2
        text = f"{text[:half]}\n...\n{text[-half:]}"
    return text.rstrip().split("\n")
