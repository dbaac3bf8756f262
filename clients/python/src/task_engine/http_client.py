"""Creates tasks over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional

from .create import AnyTask, TaskId
from .errors import HttpError, InvalidArgument
from .flow import CreatedFlow, Flow, as_new_task
from .json_values import encode
from .new_task import NewTask, retry_body
from .statements import flow_of_one, signal_body

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .new_task import TaskOptions

__all__ = ["HttpClient"]


class HttpClient:
    """The HTTP API of `task-engine web` or `task-engine start --web`."""

    def __init__(
        self,
        url: str = "http://localhost:8642",
        *,
        token: Optional[str] = None,
        timeout: float = 10,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidArgument(f"{url!r} is not a URL like http://localhost:8642")
        self._url = url.rstrip("/")
        self._token = token
        self._timeout = timeout

    def create(
        self,
        task: AnyTask,
        parameters: Any = None,
        *,
        idempotency_key: Optional[str] = None,
        **options: Unpack[TaskOptions],
    ) -> TaskId:
        """Creates a task. With an idempotency key, the call can be repeated if its answer was
        lost: the task is created once."""
        new = as_new_task(task, parameters, options)
        if any(new.dependencies().values()):
            if idempotency_key is not None:
                raise InvalidArgument(
                    "a task that depends on others has no idempotency key; use create_flow with one"
                )
            (task_id,) = self.create_flow(flow_of_one(new)).values()
            return TaskId(task_id)
        return self._create(new.body_text(_row(new)), idempotency_key)[0]

    def create_many(
        self, tasks: Iterable[NewTask], *, idempotency_key: Optional[str] = None
    ) -> list[TaskId]:
        """Creates at most 1,000 tasks: all of them, or none."""
        several = list(tasks)
        if any(any(task.dependencies().values()) for task in several):
            raise InvalidArgument(
                "create_many takes no tasks that depend on others; create a Flow, or call create"
            )
        if not several:
            return []
        text = ",".join(task.body_text(_row(task)) for task in several)
        return self._create(f"[{text}]", idempotency_key)

    def create_flow(self, flow: Flow, *, idempotency_key: Optional[str] = None) -> CreatedFlow:
        """Creates the tasks of a flow, all or none."""
        tasks = {
            name: task.body_text({**_row(task, "delay"), **flow.dependencies.get(name, {})})
            for name, task in flow.tasks.items()
        }
        answer = self._post("/flows", flow.body_text(tasks), idempotency_key)
        ids = {name: TaskId(task_id) for name, task_id in answer["tasks"].items()}
        return CreatedFlow(ids, answer["correlation_id"])

    def signal(self, task_id: int, name: str, payload: Any = None) -> str:
        """Sends a signal to a task. Returns what `task_engine.signal` returns."""
        path = f"/tasks/{int(task_id)}/signals/{urllib.parse.quote(name, safe='')}"
        body = json.loads(signal_body(name, payload))["payload"]
        return self._signal(path, encode(body))

    def signal_by_key(self, task_class: str, key: str, name: str, payload: Any = None) -> str:
        """Sends a signal to the task that was created last with this class and unique key."""
        body = signal_body(name, payload, **{"class": task_class, "key": key})
        return self._signal("/signals", body)

    def _signal(self, path: str, body: str) -> str:
        try:
            return str(self._post(path, body)["status"])
        except HttpError as error:
            if error.status == 404 and path != "/signals":
                return "not_found"
            if error.status == 409 and "outcome" in error.problem:
                return str(error.problem["outcome"])
            raise

    def _create(self, body: str, idempotency_key: Optional[str]) -> list[TaskId]:
        answer = self._post("/tasks", body, idempotency_key)
        return [TaskId(task["id"], task["outcome"]) for task in answer["tasks"]]

    def _post(self, path: str, body: str, idempotency_key: Optional[str] = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        url = f"{self._url}/api/v1{path}"
        request = urllib.request.Request(url, body.encode(), headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise _http_error(error.code, error.read()) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise HttpError(0, f"no answer from {self._url}: {reason}") from error


def _http_error(status: int, answer: bytes) -> HttpError:
    try:
        problem = json.loads(answer)
        said = " ".join(str(problem[name]) for name in ("detail", "pointer") if problem.get(name))
        return HttpError(status, f"{status} {problem.get('title', '')}: {said}", problem)
    except (ValueError, AttributeError):
        return HttpError(status, f"{status}: {answer[:200].decode('utf-8', 'replace')}")


def _row(task: NewTask, wait: str = "after") -> dict[str, Any]:
    row = task.common_body()
    options = {
        wait: task.after_text(),
        "key": task.key,
        "scope": task.scope_text(),
        "on_conflict": task.on_conflict,
        "correlation_id": task.correlation_id,
        "traceparent": task.traceparent,
        "limits": task.limits_body(),
        "retry": None if task.retry is None else retry_body(task.retry),
    }
    row.update({name: value for name, value in options.items() if value is not None})
    return row
