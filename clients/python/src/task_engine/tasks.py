"""Tasks: functions that are registered under the name of a class."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, Union, overload

from .create import SCHEMA, TaskId, create, create_async
from .durations import Duration, duration_text
from .errors import InvalidArgument, InvalidParameters
from .json_values import encode
from .new_task import NewTask, RetryRule, retry_body
from .signature import Signature

if sys.version_info >= (3, 10):
    from typing import Concatenate, ParamSpec
elif TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

if TYPE_CHECKING or sys.version_info >= (3, 10):
    P = ParamSpec("P")
else:
    P = TypeVar("P")

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .context import AsyncContext, Context
    from .new_task import TaskOptions

__all__ = ["Task", "registered", "task"]

R = TypeVar("R")


class Task(Generic[P, R]):
    """A task function. Call it as before, or create tasks that run it."""

    def __init__(
        self,
        function: Callable[..., R],
        name: str,
        options: Mapping[str, Any],
        creation: Optional[Mapping[str, Any]] = None,
    ) -> None:
        self.function = function
        self.name = name
        self.options = options
        """The options of the class, as the announcement has them."""
        self.is_async = inspect.iscoroutinefunction(function)
        self._creation = dict(creation or {})
        functools.update_wrapper(self, function)

    @functools.cached_property
    def signature(self) -> Signature:
        # Not in the constructor: its annotations may name what is defined below the function.
        return Signature(self.function, f"task {self.name}")

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def new(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """A task with these parameters, which are those of the function without the context."""
        return self.new_task(self.signature.parameters(args, kwargs))

    def create(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """Creates a task: `resize.create(connection, width=80)`."""
        return create(connection, self.new(*args, **kwargs), schema=self._schema)

    async def create_async(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """As `create`, on an asynchronous connection."""
        return await create_async(connection, self.new(*args, **kwargs), schema=self._schema)

    def with_options(self, *, schema: str = SCHEMA, **options: Unpack[TaskOptions]) -> Task[P, R]:
        """The same task with options for its creation:
        `resize.with_options(after="10m").create(connection, width=80)`."""
        NewTask(self.name).with_options(**options)
        creation = {**self._creation, **options, "schema": schema}
        return Task(self.function, self.name, self.options, creation)

    @property
    def _schema(self) -> str:
        return str(self._creation.get("schema", SCHEMA))

    def new_task(self, parameters: Any) -> NewTask:
        options: dict[str, Any] = {key: self.options.get(key) for key in ("queue", "priority")}
        options.update(self._creation)
        options.pop("schema", None)
        new = NewTask(self.name, {} if parameters is None else parameters, **options)
        try:
            self.signature.check(json.loads(encode(new.parameters)))
        except (InvalidParameters, ValueError) as error:
            raise InvalidArgument(f"task {self.name}: {error}") from error
        return new


_registry: dict[str, Task[Any, Any]] = {}


def registered() -> dict[str, Task[Any, Any]]:
    """All tasks by the name of their class."""
    return dict(_registry)


class _Decorator:
    """What `task(...)` returns: it knows the context by the type of the first parameter."""

    def __init__(self, name: Optional[str], options: Mapping[str, Any]) -> None:
        self._name, self._options = name, options

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[AsyncContext, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Any:
        name = self._name or function.__name__
        made: Task[Any, Any] = Task(function, name, self._options)
        before = _registry.get(name)
        # A module that is loaded again replaces its own tasks.
        if before is not None and _place(before.function) != _place(function):
            raise InvalidArgument(
                f"two functions are registered as task {name!r}: "
                f"{' in '.join(_place(before.function))}, and {' in '.join(_place(function))}"
            )
        _registry[name] = made
        return made


def task(
    name: Optional[str] = None,
    *,
    retries: Optional[int] = None,
    retry: Optional[RetryRule] = None,
    timeout: Optional[Duration] = None,
    grace: Optional[Duration] = None,
    queue: Optional[str] = None,
    priority: Optional[int] = None,
    result_bytes: Optional[int] = None,
    log_lines: Optional[int] = None,
    secret: Optional[Iterable[str]] = None,
    limit: Optional[Union[int, Mapping[str, Any]]] = None,
    rate: Optional[Union[str, Mapping[str, Any]]] = None,
    in_order: Optional[Union[bool, Mapping[str, Any]]] = None,
    fair: Optional[str] = None,
    limits: Optional[Iterable[Mapping[str, Any]]] = None,
) -> _Decorator:
    """Registers a function as a task: `@task("resize", retries=5, timeout="30s")`.

    Without a name, the class is named after the function. The options are those of
    `[class.NAME]` in task-engine.toml.
    """
    if callable(name):
        raise InvalidArgument(f'write @task("{name.__name__}") or @task(), with parentheses')
    rule = dict(retry or {})
    if retries is not None:
        if "maximum" in rule:
            raise InvalidArgument("retries is the maximum of the retry rule; pass one of them")
        rule["maximum"] = retries
    if isinstance(secret, str):
        raise InvalidArgument(f"secret is a list of parameters: secret=[{secret!r}]")
    options = {
        "retry": retry_body(rule, milliseconds_names=False) or None,
        "timeout": None if timeout is None else duration_text(timeout),
        "grace": None if grace is None else duration_text(grace),
        "queue": queue,
        "priority": priority,
        "result_bytes": result_bytes,
        "log_lines": log_lines,
        "secret": None if secret is None else list(secret),
        "limit": limit,
        "rate": _with_duration(rate),
        "in_order": in_order,
        "fair": fair,
        "limits": None if limits is None else [_limit(one) for one in limits],
    }
    return _Decorator(name, {key: value for key, value in options.items() if value is not None})


def _with_duration(rate: Any) -> Any:
    if isinstance(rate, Mapping) and "per" in rate:
        return {**rate, "per": duration_text(rate["per"])}
    return rate


def _limit(limit: Mapping[str, Any]) -> dict[str, Any]:
    return {**limit, "rate": _with_duration(limit["rate"])} if "rate" in limit else dict(limit)


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    code = getattr(function, "__code__", None)
    return (function.__qualname__, getattr(code, "co_filename", function.__module__))
