"""A worker process, with the test as its engine."""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Callable

import pytest

from conftest import TIMEOUT, WorkerProcess

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(params=["check_worker.py", "check_async_worker.py"])
def worker(request: pytest.FixtureRequest, start_worker: StartWorker) -> WorkerProcess:
    return start_worker(request.param)


@pytest.fixture
def odd(start_worker: StartWorker) -> WorkerProcess:
    return start_worker("odd_worker.py")


def error(exception: str, message: str) -> dict[str, Any]:
    return {"exception": exception, "message": message}


def test_announces_its_tasks(odd: WorkerProcess) -> None:
    announcement = odd.announcement
    assert announcement["protocol"] == 1
    assert announcement["concurrency"] == 10
    assert announcement["client"].startswith("task-engine-python 0.")
    classes = {entry["class"]: entry for entry in announcement["classes"]}
    schema = classes["typed"].pop("schema")
    assert classes["typed"] == {
        "class": "typed",
        "retry": {"maximum": 5},
        "timeout": "90s",
        "queue": "slow",
        "priority": 3,
        "secret": ["order.item"],
    }
    assert schema["required"] == ["order"]
    assert schema["$defs"]["Order"]["required"] == ["item", "cents"]
    assert classes["order"]["retry"] == {"first_delay": "50ms", "factor": 1.0}


def test_echoes_any_value(worker: WorkerProcess) -> None:
    big = {"text": "ü\u2028\u0000🦀" * 170_000, "list": [1, 2.5, None, True, 2**70]}
    values: list[Any] = [None, 0, "", [], {"a": {"b": [1.0]}}, big]
    for value in values:
        assert worker.answer("check.echo", {"value": value}) == {"result": value}


def test_tells_about_its_task(worker: WorkerProcess) -> None:
    result = worker.answer("check.info", number=17, correlation_id="order 3", retry_number=2)
    assert result["result"] == {
        "task_id": 17,
        "attempt": 1,
        "retry_number": 2,
        "class": "check.info",
        "correlation_id": "order 3",
    }
    dependencies = {"a": {"id": 1, "status": "stopped", "result": [1]}}
    answer = worker.answer("check.dependencies", dependencies=dependencies)
    assert answer == {"result": dependencies}


def test_fails_as_the_task_says(worker: WorkerProcess) -> None:
    answer = worker.answer("check.fail", {"message": "no ü\nsecond"})
    backtrace = answer["error"].pop("backtrace")
    assert answer == {"error": error("ValueError", "no ü\nsecond")}
    assert backtrace[0] == "Traceback (most recent call last):"
    assert "check_common.py" in backtrace[1], "the first frame is that of the task"
    assert "executor.py" not in "".join(backtrace)
    answer = worker.answer("check.fail_for_good", {"message": "no"})
    assert (answer["retry"], answer["error"]["message"]) == (False, "no")
    later = {"message": "no", "time": "90s"}
    answer = worker.answer("check.fail_later", later)
    assert (answer["retry"], answer["error"]["exception"]) == ("90s", "RetryAfter")
    assert worker.answer("check.snooze", later) == {"snooze": "90s", "message": "no"}
    assert worker.answer("check.rate_limited", later) == {"rate_limited": "90s", "message": "no"}


def test_reports_progress(worker: WorkerProcess) -> None:
    attempt = worker.begin("check.progress", {"percent": 40, "message": "half"})
    assert worker.line() == {"id": attempt, "progress": 40.0, "message": "half"}
    assert worker.line() == {"id": attempt, "result": None}


def test_joins_pending_log_lines(worker: WorkerProcess) -> None:
    attempt = worker.begin("check.log", {"lines": 10_000})
    lines: list[str] = []
    sent = 0
    while "log" in (line := worker.line()):
        lines.extend(line["log"])
        sent += 1
        assert len(json.dumps(line)) < 64 * 1024
    assert line == {"id": attempt, "result": 10_000}
    assert lines == [f"line {number}" for number in range(1, 10_001)]
    assert sent < 2_000


def test_steps_get_recorded_results(worker: WorkerProcess) -> None:
    attempt = worker.begin("check.step", {"values": ["a", {"b": 1}]})
    assert worker.line() == {"id": attempt, "step": "value"}
    worker.send({"id": attempt, "step": "value", "recorded": "other", "unknown": 1})
    assert worker.line() == {"id": attempt, "step": "value"}
    # Neither is an answer.
    worker.send({"id": attempt, "unknown": 1}, {"unknown": 2}, {"id": "99.1", "step": "value"})
    worker.send({"id": attempt, "step": "value#2", "run": True})
    assert worker.line() == {"id": attempt, "step": "value#2", "result": {"b": 1}}
    worker.send({"id": attempt, "step": "value#2", "recorded": {"b": 1}})
    assert worker.line() == {"id": attempt, "result": ["other", {"b": 1}]}


def test_waits_sleeps_and_calls(worker: WorkerProcess) -> None:
    attempt = worker.begin("check.sleep", {"time": "3d"})
    assert worker.line() == {"id": attempt, "sleep": "pause", "for": "259200s"}
    worker.send({"id": attempt, "sleep": "pause", "over": True})
    assert worker.line() == {"id": attempt, "result": "awake"}
    answer: dict[str, Any]
    result: Any
    for answer, result in (({"signal": {"by": "ada"}}, {"by": "ada"}), ({"timed_out": True}, None)):
        attempt = worker.begin("check.wait", {"timeout": "90s"})
        assert worker.line() == {"id": attempt, "wait": "approved", "timeout": "90s"}
        worker.send({"id": attempt, "wait": "approved", **answer})
        assert worker.line() == {"id": attempt, "result": result or "timed out"}
    child = {"class": "ü", "parameters": {"a": 1}}
    failed = {"task_id": 9, "status": "failed", "error": {"exception": "E", "message": "no"}}
    stopped = {"status": "stopped", "result": 7}
    for answer, result in ((stopped, 7), (failed, "failed: no")):
        attempt = worker.begin("check.call", child)
        assert worker.line() == {"id": attempt, "call": "ü", "tasks": [child]}
        worker.send({"id": attempt, "call": "ü", "results": [{"task_id": 9, **answer}]})
        assert worker.line() == {"id": attempt, "result": result}


@pytest.mark.parametrize("ended", ["suspended", "failed", "before"])
def test_ended_attempt_sends_nothing_more(worker: WorkerProcess, ended: str) -> None:
    attempt = worker.begin("check.sleep", {"time": "3d"})
    assert "sleep" in worker.line()
    worker.send({"id": attempt, "ended": ended, "message": "gone"})
    assert worker.answer("check.echo", {"value": 1}, number=2) == {"result": 1}
    assert worker.close() == []


@pytest.mark.parametrize("task_class", ["swallows", "swallows_async"])
def test_ended_is_not_caught_by_handlers(odd: WorkerProcess, task_class: str) -> None:
    attempt = odd.begin(task_class)
    assert odd.line() == {"id": attempt, "sleep": "pause", "for": "3600s"}
    odd.send({"id": attempt, "ended": "suspended", "message": "sleeps"})
    assert odd.close() == []


def test_cancels_a_task_that_waits_for_it(worker: WorkerProcess) -> None:
    attempt = worker.begin("check.wait_for_cancel")
    # Executed after the other task has begun.
    assert worker.answer("check.echo", {"value": 1}, number=2) == {"result": 1}
    worker.send({"cancel": "99.1"}, {"cancel": attempt}, {"cancel": attempt})
    assert worker.line() == {"id": attempt, "result": "cancelled"}


@pytest.mark.parametrize(
    ("task_class", "answer"),
    [
        ("until_cancelled", "TaskCancelled"),
        ("polls", {"result": "TaskCancelled is an Exception: False"}),
        ("awaits", "TaskCancelled"),
        ("cleans_up", {"result": "cleaned up"}),
    ],
)
def test_cancellation_reaches_the_code(odd: WorkerProcess, task_class: str, answer: Any) -> None:
    attempt = odd.begin(task_class)
    assert odd.line()["log"] == ["begun"]
    odd.send({"cancel": attempt})
    line = odd.line()
    assert line.pop("id") == attempt
    if isinstance(answer, str):
        assert line["error"]["exception"] == answer
    else:
        assert line == answer


@pytest.mark.parametrize("task_class", ["check.echo", "check.log"])
def test_task_cancelled_before_it_begins(worker: WorkerProcess, task_class: str) -> None:
    task = {"task_id": 1, "attempt": 1, "retry_number": 0, "class": task_class}
    task.update(correlation_id="1", parameters={"value": 1, "lines": 1})
    lines = [{"id": "1.1", **task}, {"cancel": "1.1"}]
    worker.send("".join(json.dumps(line) + "\n" for line in lines).encode())
    # It may have begun nevertheless, but it is answered.
    while "log" in (line := worker.line()):
        pass
    assert line["id"] == "1.1"
    assert "error" in line or "result" in line


@pytest.mark.parametrize("task_class", ["waits_for_signal", "waits_for_signal_sync"])
def test_cancellation_ends_a_durable_call(odd: WorkerProcess, task_class: str) -> None:
    attempt = odd.begin(task_class)
    assert odd.line()["wait"] == "approved"
    odd.send({"cancel": attempt})
    assert odd.line()["error"]["exception"] == "TaskCancelled"
    # An answer that comes too late.
    odd.send({"id": attempt, "wait": "approved", "signal": 1})
    assert odd.answer("whole", {"item": "book", "cents": 1}, number=2)["result"]["item"] == "book"


def test_printing_does_not_break_the_protocol(odd: WorkerProcess) -> None:
    # What the task reads from the standard input is empty, too.
    assert odd.answer("prints") == {"result": ""}
    assert odd.close() == []
    errors = odd.errors()
    for text in ("before serve", "from print", "from fd 1", "without a line", "from a child"):
        assert text in errors


def test_print_goes_to_standard_error(worker: WorkerProcess) -> None:
    assert worker.answer("check.print", {"text": '{"id": "1.1"}'}) == {"result": None}
    worker.close()
    assert '{"id": "1.1"}' in worker.errors()


@pytest.mark.parametrize(
    ("task_class", "parameters", "message"),
    [
        ("typed", {"order": {"item": "a", "cents": "1"}}, '"order.cents": expected a whole number'),
        ("typed", {"order": {"item": "a", "cents": True}}, "expected a whole number, not true"),
        ("typed", {"order": {"item": "a"}}, 'parameter "order.cents" is missing'),
        ("typed", {}, 'parameter "order" is missing'),
        ("typed", {"odrer": 1}, "\"odrer\" is unknown; did you mean 'order'?"),
        ("whole", {"item": "a", "cents": 1, "due": "soon"}, '"due": expected a time like'),
        ("check.unknown", {}, "no task 'check.unknown'"),
    ],
)
def test_wrong_parameters_are_not_retried(
    odd: WorkerProcess, task_class: str, parameters: Any, message: str
) -> None:
    answer = odd.answer(task_class, parameters)
    assert answer["retry"] is False
    assert message in answer["error"]["message"]


def test_parameters_get_their_types(odd: WorkerProcess) -> None:
    order = {"item": "ü", "cents": 1, "due": "2027-01-31T08:00:00Z"}
    read = {**order, "due": "2027-01-31T08:00:00+00:00"}
    assert odd.answer("typed", {"order": order}) == {"result": {"order": read, "copies": 1}}
    assert odd.answer("whole", order) == {"result": read}


@pytest.mark.parametrize(
    ("task_class", "message"),
    [
        ("not_json", "the result (of type dict) is not JSON: a value of the type builtins.object"),
        ("not_a_number", "NaN and infinity are not JSON"),
        ("surrogate", "half of a surrogate pair"),
    ],
)
def test_result_that_is_not_json_fails(odd: WorkerProcess, task_class: str, message: str) -> None:
    answer = odd.answer(task_class)
    assert answer["error"]["exception"] == "InvalidResult"
    assert message in answer["error"]["message"]
    assert answer["retry"] is False


def test_exit_and_causes_are_errors(odd: WorkerProcess) -> None:
    assert odd.answer("exits")["error"]["exception"] == "SystemExit"
    answer = odd.answer("chained")
    assert answer["error"]["exception"] == "NoRetry"
    assert any("no such account" in line for line in answer["error"]["backtrace"])
    answer = odd.answer("broken_error")
    assert answer["error"]["message"] == "(its __str__ raises RuntimeError)"


def test_logging_goes_to_the_log_of_the_task(odd: WorkerProcess) -> None:
    for task_class, expected in (
        ("logs", ["order 7", "two", "lines"]),
        ("logs_async", ["current", "inner", "thread"]),
    ):
        odd.begin(task_class)
        lines: list[str] = []
        while "log" in (line := odd.line()):
            lines += line["log"]
        assert "result" in line
        assert lines == expected or (task_class == "logs_async" and sorted(lines) == expected)


def test_results_of_dependencies(odd: WorkerProcess) -> None:
    extract = {"id": 4, "status": "stopped", "result": [1]}
    other = {"id": 17, "status": "stopped", "result": "x"}
    dependencies = {"extract": extract, "load": other}
    assert odd.answer("results", dependencies=dependencies) == {"result": [[1], "x"]}
    other = {"id": 17, "status": "failed", "error": {"exception": "E", "message": "no"}}
    answer = odd.answer("results", dependencies={"extract": extract, "load": other})
    assert answer["error"]["message"] == "task 17 failed: E: no"
    answer = odd.answer("results")
    assert "does not depend on 'extract'" in answer["error"]["message"]


def test_steps_run_side_by_side(odd: WorkerProcess) -> None:
    attempt = odd.begin("parallel_steps")
    names = [odd.line()["step"] for _ in range(5)]
    for name in names:
        odd.send({"id": attempt, "step": name, "run": True})
    for name in names:
        line = odd.line()
        assert line["step"] == name
        odd.send({"id": attempt, "step": name, "recorded": line["result"] + 10})
    assert odd.line() == {"id": attempt, "result": [10, 11, 12, 13, 14]}


def test_finishes_its_tasks_at_the_end_of_input(odd: WorkerProcess) -> None:
    begun = odd.begin("until_cancelled", number=1)
    assert odd.line()["log"] == ["begun"]
    waits = odd.begin("waits_for_signal", number=2)
    assert odd.line()["wait"] == "approved"
    odd.send({"cancel": begun})
    lines = odd.close()
    # The wait gets no answer any more, so its attempt has ended.
    assert [line["id"] for line in lines] == [begun]
    assert waits not in json.dumps(lines)


def test_many_tasks_at_a_time(start_worker: StartWorker) -> None:
    worker = start_worker("odd_worker.py", "200")
    for number in range(200):
        worker.begin("until_cancelled", number=number)
    begun: set[str] = set()
    while len(begun) < 200:
        begun.add(worker.line()["id"])
    worker.send(*({"cancel": attempt} for attempt in begun))
    assert {worker.line()["id"] for _ in range(200)} == begun


def test_unknown_lines_are_ignored(worker: WorkerProcess) -> None:
    worker.send(b"\n", b"[1]\n", b"nonsense \xff\n", {"hello": 1}, {"cancel": None})
    worker.send({"id": "5.1", "parameters": {}}, {"id": 7})
    assert worker.answer("check.echo", {"value": 1}, unknown={"a": 1}) == {"result": 1}
    assert worker.close() == []


def test_process_can_end_itself(worker: WorkerProcess) -> None:
    worker.begin("check.exit", {"code": 3})
    assert worker.process.wait(TIMEOUT) == 3


def test_dead_engine_ends_the_worker(odd: WorkerProcess) -> None:
    assert odd.process.stdout is not None
    odd.begin("until_cancelled")
    assert odd.line()["log"] == ["begun"]
    os.kill(odd.process.pid, signal.SIGTERM)
    assert odd.process.wait(TIMEOUT) == -signal.SIGTERM
