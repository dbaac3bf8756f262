#!/usr/bin/env python3
"""An order that survives every crash: reserve, charge, wait for approval, ship, notify.

If it is refused, not approved in time, or cannot be shipped, the money goes back and the
item is released. Recorded steps never run again. The code between them runs again in every
attempt, so it has no effects of its own.
"""
from durable import ChildFailed, WaitTimedOut, run


def order(task):
    item, cents = task.parameters["item"], task.parameters["cents"]
    task.step("reserve", lambda: effect("reserve", task, item))
    payment = task.step("charge", lambda: effect("charge", task, cents))
    try:
        approval = task.wait_for("approved", timeout=task.parameters["approve_within"])
        if not approval["yes"]:
            return undo(task, payment, f"refused by {approval['by']}")
        # A task of its own, with its own retries: this is its final result.
        parcel = task.call("ship", {"item": item})
    except WaitTimedOut:
        return undo(task, payment, "not approved in time")
    except ChildFailed as error:
        return undo(task, payment, f"not shipped: {error}")
    task.sleep("delivery", "1s")
    task.step("notify", lambda: effect("notify", task, f"parcel {parcel} has arrived"))
    return f"shipped as parcel {parcel}"


def undo(task, payment, why):
    task.step("refund", lambda: effect("refund", task, payment))
    task.step("release", lambda: effect("release", task, task.parameters["item"]))
    task.step("notify", lambda: effect("notify", task, why))
    return f"cancelled: {why}"


def ship(task):
    if task.parameters["item"] == "piano":
        raise ValueError("too heavy for the courier")
    return effect("ship", task, task.parameters["item"])


def effect(name, task, details):
    """Stands for a bank, a courier, a mail server. An effect can happen twice, if the engine
    dies before the step is recorded, so the task id goes with it as a key."""
    with open("effects.txt", "a") as file:
        file.write(f"{name} {task.task_id} {details}\n")
    return f"{name}-{task.task_id}"


run({"order": order, "ship": ship})
