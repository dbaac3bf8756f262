#!/usr/bin/env python3
"""A long-running process for two classes: {"a": 1, "b": 2} in, a number out, one line a task."""
import json
import sys

CLASSES = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}

for line in sys.stdin:
    task = json.loads(line)
    if "cancel" in task:
        continue  # too late: the task is answered before the next line is read
    parameters = task["parameters"]
    work = CLASSES[task["class"]]
    try:
        answer = {"result": work(parameters["a"], parameters["b"])}
    except (KeyError, TypeError) as error:
        answer = {"error": {"exception": type(error).__name__, "message": str(error)}, "retry": False}
    print(json.dumps({"id": task["id"], **answer}), flush=True)
