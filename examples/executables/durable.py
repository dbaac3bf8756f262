"""Durable tasks in Python: the lines of docs/executables.md as calls that return or raise."""
import json
import queue
import sys
import threading
import traceback


class Ended(BaseException):
    """The attempt has ended. Not an Exception: code that handles errors must not see it."""


class Cancelled(BaseException):
    """The task was cancelled, or its time is over."""


class WaitTimedOut(Exception):
    """The signal did not arrive in time."""


class ChildFailed(Exception):
    """A child task did not succeed."""


class Task:
    def __init__(self, line):
        self.id, self.task_id, self.parameters = line["id"], line["task_id"], line["parameters"]
        self.lines = queue.SimpleQueue()  # what the engine sends for this task
        self.cancelled = False

    def step(self, name, code):
        """Runs code once. Later attempts get the recorded result."""
        answer = self._ask({"step": name})
        if "recorded" not in answer:
            answer = self._ask({"step": answer["step"], "result": code()})
        return answer["recorded"]

    def sleep(self, name, time):
        self._ask({"sleep": name, "for": time})

    def wait_for(self, name, timeout):
        """The payload of a signal to this task."""
        answer = self._ask({"wait": name, "timeout": timeout})
        if answer.get("timed_out"):
            raise WaitTimedOut(name)
        return answer["signal"]

    def call(self, task_class, parameters):
        """Creates a child task and returns its result."""
        tasks = [{"class": task_class, "parameters": parameters}]
        child = self._ask({"call": task_class, "tasks": tasks})["results"][0]
        if "error" in child:
            raise ChildFailed(f"task {child['task_id']} {child['status']}: {child['error']['message']}")
        return child["result"]

    def _ask(self, request):
        if self.cancelled:
            raise Cancelled
        send({"id": self.id, **request})
        answer = self.lines.get()
        if "ended" in answer:
            raise Ended(answer["message"])
        return answer


def run(classes):
    """Runs tasks until the engine closes the standard input. Each task has a thread."""
    tasks = {}

    def work(task, code):
        try:
            answer = {"result": code(task)}
        except Ended:
            answer = None
        except Cancelled:
            answer = {"error": "cancelled"}
        except Exception as error:
            answer = {"error": {"exception": type(error).__name__, "message": str(error),
                                "backtrace": traceback.format_exc()}}
        del tasks[task.id]
        if answer is not None:
            send({"id": task.id, **answer})

    for line in map(json.loads, sys.stdin):
        if "parameters" in line:
            task = tasks[line["id"]] = Task(line)
            threading.Thread(target=work, args=[task, classes[line["class"]]], daemon=True).start()
        elif line.get("cancel") in tasks:
            tasks[line["cancel"]].cancelled = True
        elif line.get("id") in tasks:
            tasks[line["id"]].lines.put(line)


output = threading.Lock()


def send(line):
    with output:
        print(json.dumps(line), flush=True)
