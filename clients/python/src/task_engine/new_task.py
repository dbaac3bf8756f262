"""A task to create, with its options. They are checked here, before anything is sent."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Optional, Union

from .durations import Duration, duration_text, milliseconds
from .errors import InvalidArgument
from .json_values import encode
from .suggest import did_you_mean

TaskIds = Union[int, Iterable[int]]
Limits = Union[Mapping[str, Optional[Union[str, int]]], Iterable[str]]

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    class RetryRule(TypedDict, total=False):
        """When a failed task is retried. What is missing comes from the class."""

        maximum: int
        first_delay: Duration
        factor: float
        cap: Duration
        jitter: float
        restart_after_progress: bool

    class TaskOptions(TypedDict, total=False):
        """The options of a new task, which `NewTask` describes."""

        at: Optional[Union[datetime, str]]
        after: Optional[Duration]
        queue: Optional[str]
        priority: Optional[int]
        key: Optional[str]
        scope: Optional[Union[str, Duration]]
        on_conflict: Optional[str]
        limits: Optional[Limits]
        correlation_id: Optional[str]
        traceparent: Optional[str]
        retry: Optional[RetryRule]
        after_task: TaskIds
        after_task_end: TaskIds
        after_task_failure: TaskIds

else:
    RetryRule = dict

__all__ = ["NewTask", "RetryRule", "TaskIds"]

_RETRY = ("maximum", "first_delay", "factor", "cap", "jitter", "restart_after_progress")
_ON_CONFLICT = ("keep", "replace", "replace_parameters", "replace_time")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclasses.dataclass(frozen=True)
class NewTask:
    """A task to create: its class, its parameters, and options."""

    task_class: str
    parameters: Any = None
    at: Optional[Union[datetime, str]] = None
    """When it is due: a datetime with a time zone. Not with `after`."""
    after: Optional[Duration] = None
    """The time after which it is due: "10m", a timedelta, or seconds."""
    queue: Optional[str] = None
    priority: Optional[int] = None
    """Tasks of a higher priority run first. The default is 0."""
    key: Optional[str] = None
    """A unique key: the task is created only if no other task of its class has it."""
    scope: Optional[Union[str, Duration]] = None
    """Which tasks with the key conflict: "active" (default), "waiting", or those of a duration."""
    on_conflict: Optional[str] = None
    """"keep" (default), "replace", "replace_parameters" or "replace_time"."""
    limits: Optional[Limits] = None
    """Named limits that apply to it, each with its key: {"api": "acme"}, or ["api"]."""
    correlation_id: Optional[str] = None
    traceparent: Optional[str] = None
    retry: Optional[RetryRule] = None
    """Overrides the retry rule of its class: {"maximum": 3, "first_delay": "10s"}."""
    after_task: TaskIds = ()
    """It starts when these tasks have succeeded."""
    after_task_end: TaskIds = ()
    """It starts when these tasks have ended."""
    after_task_failure: TaskIds = ()
    """It starts when these tasks have ended, and one of them did not succeed."""

    def __post_init__(self) -> None:
        if not isinstance(self.task_class, str) or not self.task_class:
            raise InvalidArgument(
                f"{self.task_class!r} is not the name of a task class; write a text like 'resize'"
            )
        for name in ("queue", "correlation_id", "key"):
            _check_text(name, getattr(self, name), 500 if name == "key" else 200)
        if isinstance(self.priority, bool) or not isinstance(self.priority, (int, type(None))):
            raise InvalidArgument(f"priority is a whole number like 5, not {self.priority!r}")
        if self.at is not None and self.after is not None:
            raise InvalidArgument("pass `at` or `after`, not both")
        if self.key is None and (self.scope is not None or self.on_conflict is not None):
            raise InvalidArgument('scope and on_conflict need a unique key, like key="order 7"')
        if self.on_conflict is not None and self.on_conflict not in _ON_CONFLICT:
            hint = did_you_mean(str(self.on_conflict), _ON_CONFLICT)
            raise InvalidArgument(
                f"on_conflict is {', '.join(_ON_CONFLICT)}, not {self.on_conflict!r}{hint}"
            )
        if self.traceparent is not None and not _TRACEPARENT.fullmatch(self.traceparent):
            raise InvalidArgument(
                f"{self.traceparent!r} is not a traceparent like "
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
            )
        if self.key is not None and any(self.dependencies().values()):
            raise InvalidArgument("a task that depends on others cannot have a unique key")

    def with_options(self, **options: Unpack[TaskOptions]) -> NewTask:
        """The same task with other options."""
        known = [field.name for field in dataclasses.fields(self)][2:]
        for name in options:
            if name not in known:
                raise InvalidArgument(
                    f"a task has no option {name!r}{did_you_mean(name, known)}; "
                    f"the options are {', '.join(known)}"
                )
        return dataclasses.replace(self, **options) if options else self

    def common_body(self) -> dict[str, Any]:
        """What SQL and HTTP have in common. Options that are not set are missing."""
        body: dict[str, Any] = {"class": self.task_class}
        if self.queue is not None:
            body["queue"] = self.queue
        if self.priority is not None:
            body["priority"] = self.priority
        if self.at is not None:
            body["scheduled_at"] = time_text("at", self.at)
        return body

    def after_text(self) -> Optional[str]:
        return None if self.after is None else duration_text(self.after)

    def scope_text(self) -> Optional[str]:
        if self.scope is None or self.scope in ("active", "waiting"):
            return None if self.scope is None else str(self.scope)
        try:
            return duration_text(self.scope)
        except InvalidArgument:
            raise InvalidArgument(
                f'scope is "active", "waiting" or a duration like "1h", not {self.scope!r}'
            ) from None

    def limits_body(self) -> Optional[dict[str, Optional[str]]]:
        if self.limits is None:
            return None
        if isinstance(self.limits, str):
            raise InvalidArgument(f"write limits=[{self.limits!r}] instead of a text")
        if isinstance(self.limits, Mapping):
            named = {k: None if v is None else str(v) for k, v in self.limits.items()}
        else:
            named = dict.fromkeys(self.limits)
        if len(named) > 3:
            raise InvalidArgument(f"a task names at most 3 limits, not {len(named)}")
        return named

    def dependencies(self) -> dict[str, list[int]]:
        """The tasks that it depends on, by the field of a flow."""
        return {
            "after": _ids("after_task", self.after_task),
            "after_end": _ids("after_task_end", self.after_task_end),
            "after_failure": _ids("after_task_failure", self.after_task_failure),
        }

    def body_text(self, body: dict[str, Any]) -> str:
        """The body with the parameters, which may be long and are encoded once."""
        return f'{{"parameters":{self._parameters()},{encode(body)[1:]}'

    def _parameters(self) -> str:
        if self.parameters is None:
            return "{}"
        try:
            text = encode(self.parameters)
        except ValueError as error:
            raise InvalidArgument(f"the parameters of {self.task_class}: {error}") from error
        if not text.startswith("{"):
            raise InvalidArgument(
                f"the parameters of {self.task_class} are not an object; "
                'write a dict like {"width": 80}, or pass a dataclass'
            )
        if "\\u0000" in text and _NUL.search(text):
            raise InvalidArgument(
                f"the parameters of {self.task_class} contain the character U+0000, "
                "which cannot be stored; encode binary data as base64"
            )
        return text


def retry_body(rule: Mapping[str, Any], milliseconds_names: bool = True) -> dict[str, Any]:
    """A retry rule for a task; for a class, durations are texts."""
    body: dict[str, Any] = {}
    for name, value in rule.items():
        if name not in _RETRY:
            raise InvalidArgument(
                f"a retry rule has no {name!r}{did_you_mean(name, _RETRY)}; "
                f"it has {', '.join(_RETRY)}"
            )
        if name in ("first_delay", "cap"):
            if milliseconds_names:
                body[f"{name}_ms"] = milliseconds(value)
            else:
                body[name] = duration_text(value)
        elif name == "maximum" and (isinstance(value, bool) or not isinstance(value, int)):
            raise InvalidArgument(f"the maximum of retries is a whole number, not {value!r}")
        else:
            body[name] = value
    return body


def time_text(name: str, time: Union[datetime, str]) -> str:
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time.strip().replace("Z", "+00:00"))
        except ValueError:
            raise InvalidArgument(
                f"{name} is a time like 2026-12-24T18:00:00Z, not {time!r}"
            ) from None
    if not isinstance(time, datetime):
        raise InvalidArgument(f"{name} is a datetime, not {time!r}")
    if time.tzinfo is None:
        raise InvalidArgument(
            f"{name} is a datetime with a time zone; "
            "write datetime.now(timezone.utc) or time.astimezone()"
        )
    return time.isoformat()


def _ids(name: str, ids: TaskIds) -> list[int]:
    several = [ids] if isinstance(ids, (int, str)) else list(ids)
    for task_id in several:
        if isinstance(task_id, bool) or not isinstance(task_id, int) or task_id < 1:
            raise InvalidArgument(f"{name} is the id of a task, or a list of ids, not {task_id!r}")
    return [int(task_id) for task_id in several]


def _check_text(name: str, text: object, longest: int) -> None:
    if text is None:
        return
    if not isinstance(text, str) or not 1 <= len(text.encode("utf-8", "replace")) <= longest:
        raise InvalidArgument(f"{name} is a text of 1 to {longest} bytes, not {text!r:.200}")
