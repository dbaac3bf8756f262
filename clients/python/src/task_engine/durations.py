"""Durations: texts like "30s", timedeltas, or numbers of seconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Union

Duration = Union[str, timedelta, int, float]

_MILLISECONDS = {
    **dict.fromkeys(["ms", "millisecond", "milliseconds"], 1),
    **dict.fromkeys(["s", "sec", "secs", "second", "seconds"], 1000),
    **dict.fromkeys(["m", "min", "mins", "minute", "minutes"], 60_000),
    **dict.fromkeys(["h", "hr", "hrs", "hour", "hours"], 3_600_000),
    **dict.fromkeys(["d", "day", "days"], 86_400_000),
    **dict.fromkeys(["w", "wk", "week", "weeks"], 7 * 86_400_000),
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?")
_LONGEST = 100 * 366 * 86_400_000


def milliseconds(duration: Duration) -> int:
    """The duration in milliseconds, rounded up."""
    if isinstance(duration, bool) or not isinstance(duration, (str, timedelta, int, float)):
        raise _invalid(duration)
    if isinstance(duration, str):
        exact = _parse(duration)
    elif isinstance(duration, timedelta):
        exact = duration / timedelta(milliseconds=1)
    else:
        exact = duration * 1000
    if not 0 <= exact <= _LONGEST:
        raise _invalid(duration, "between 0 and 100 years")
    whole = int(exact)
    return whole if whole == exact else whole + 1


def duration_text(duration: Duration) -> str:
    """The duration as the engine reads it: `90s` or `1500ms`."""
    exact = milliseconds(duration)
    return f"{exact}ms" if exact % 1000 else f"{exact // 1000}s"


def _parse(text: str) -> float:
    lower = text.strip().lower()
    total = 0.0
    at = 0
    while at < len(lower):
        part = _PART.match(lower, at)
        if part is None or part[2] not in _MILLISECONDS:
            raise _invalid(text)
        total += float(part[1]) * _MILLISECONDS[part[2]]
        at = part.end()
    if not lower:
        raise _invalid(text)
    return total


def _invalid(duration: object, rule: str = 'like "30s", "10m" or "1h30m"') -> Exception:
    from .errors import InvalidArgument

    return InvalidArgument(
        f"{duration!r} is not a duration {rule}; a timedelta or a number of seconds is one, too"
    )
