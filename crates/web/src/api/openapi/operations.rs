//! All operations, one by one.

/// What a program may do.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Its name in programs that are made from the description.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// Of the query and the header, by their names in the components.
    pub(super) parameters: &'static [&'static str],
    pub(super) sent: Sent,
    /// When all is well.
    pub(super) statuses: &'static [u16],
    /// The schema of the answer; empty if it is plain text.
    pub(super) answer: &'static str,
}

/// The body of a request.
pub(super) enum Sent {
    Nothing,
    May(&'static str),
    Needs(&'static str),
}

use Sent::{May, Needs, Nothing};

impl Operation {
    pub(super) fn kind(&self) -> &'static str {
        match (self.id, self.answer) {
            ("events", _) => "text/event-stream",
            (_, "") => "text/plain",
            _ => "application/json",
        }
    }
}

const fn get(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static str],
    answer: &'static str,
) -> Operation {
    Operation {
        method: "GET",
        path,
        id,
        summary,
        parameters,
        sent: Nothing,
        statuses: &[200],
        answer,
    }
}

/// Something that is done, and answers what became of it.
const fn change(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    sent: Sent,
) -> Operation {
    let parameters: &[&str] = if let Nothing = sent { &["reason"] } else { &[] };
    Operation { method, path, id, summary, parameters, sent, statuses: &[200], answer: "Done" }
}

pub(super) const OPERATIONS: &[Operation] = &[
    get("/api/v1/openapi.json", "openapi", "This description", &[], "Any"),
    get(
        "/api/v1/tasks",
        "listTasks",
        "Tasks, newest first, without their parameters. A page may be short before the end: go on as long as there is `next`",
        &["filter", "before", "limit"],
        "TaskPage",
    ),
    Operation {
        method: "POST",
        path: "/api/v1/tasks",
        id: "createTasks",
        summary: "Creates a task, or up to 1,000, all or none. 201 if any is new, 200 if none is",
        parameters: &["idempotency_key"],
        sent: Needs("NewTasks"),
        statuses: &[200, 201],
        answer: "Created",
    },
    bulk(
        "/api/v1/tasks/retry",
        "retryTasks",
        "Sends ended tasks back to wait; without a status in the filter, failed ones",
    ),
    bulk(
        "/api/v1/tasks/cancel",
        "cancelTasks",
        "Cancels tasks: at once if they wait, by request if they run",
    ),
    bulk("/api/v1/tasks/rerun", "rerunTasks", "Creates tasks once more, with the same parameters"),
    bulk(
        "/api/v1/tasks/delete",
        "deleteTasks",
        "Removes tasks that have ended, with all that is recorded about them",
    ),
    get("/api/v1/tasks/{id}", "getTask", "Everything about a task", &[], "TaskDetails"),
    change("PATCH", "/api/v1/tasks/{id}", "editTask", "Changes a task that waits", Needs("Edit")),
    change("DELETE", "/api/v1/tasks/{id}", "deleteTask", "Removes a task that has ended", Nothing),
    get(
        "/api/v1/tasks/{id}/logs",
        "getTaskLogs",
        "Lines of its log, oldest first",
        &["attempt", "after_line", "limit"],
        "Log",
    ),
    get("/api/v1/tasks/{id}/why", "whyTask", "Why it is where it is, and does not run", &[], "Why"),
    change(
        "POST",
        "/api/v1/tasks/{id}/retry",
        "retryTask",
        "Sends an ended task back to wait, or lets a waiting one run at once",
        May("Reasoned"),
    ),
    change(
        "POST",
        "/api/v1/tasks/{id}/cancel",
        "cancelTask",
        "Cancels it: at once if it waits, by request if it runs",
        May("Reasoned"),
    ),
    change(
        "POST",
        "/api/v1/tasks/{id}/rerun",
        "rerunTask",
        "Creates it once more, with the same parameters",
        May("Reasoned"),
    ),
    get(
        "/api/v1/flows/{correlation}",
        "getFlow",
        "The tasks that share a correlation id, oldest first",
        &["after_task", "limit"],
        "Flow",
    ),
    get("/api/v1/stats", "getStats", "Figures of what goes on now", &[], "Figures"),
    get(
        "/api/v1/errors",
        "listErrors",
        "Failed tasks in groups of the same error, the largest first",
        &["filter", "before", "limit"],
        "Errors",
    ),
    get(
        "/api/v1/checks",
        "listChecks",
        "Whether all is well, and what mends it",
        &["depth"],
        "Checks",
    ),
    get(
        "/api/v1/events",
        "events",
        "Server-sent events named `figures`, each time something has changed; the data is Figures",
        &[],
        "",
    ),
    get("/api/v1/queues", "listQueues", "Queues, and who serves them", &[], "Queues"),
    change(
        "POST",
        "/api/v1/queues/{name}/pause",
        "pauseQueue",
        "No task is taken from the queue from now on",
        May("Reasoned"),
    ),
    change("POST", "/api/v1/queues/{name}/resume", "resumeQueue", "Ends a pause", May("Reasoned")),
    get(
        "/api/v1/instances",
        "listInstances",
        "Lives of engines, the newest first",
        &[],
        "Instances",
    ),
    change(
        "POST",
        "/api/v1/instances/{name}/recover",
        "recoverInstance",
        "Takes back what a dead engine has left",
        May("Reasoned"),
    ),
    get(
        "/api/v1/schedule-preview",
        "previewSchedule",
        "When a rule would fire, and what changes of clocks do to it",
        &["rule", "zone", "count"],
        "Times",
    ),
    get(
        "/api/v1/schedules",
        "listSchedules",
        "Schedules by name, without the parameters of their tasks",
        &["after_name", "limit"],
        "SchedulePage",
    ),
    Operation {
        method: "POST",
        path: "/api/v1/schedules",
        id: "createSchedule",
        summary: "Adds a schedule",
        parameters: &[],
        sent: Needs("NewSchedule"),
        statuses: &[201],
        answer: "Done",
    },
    get(
        "/api/v1/schedules/{name}",
        "getSchedule",
        "A schedule, with the slots that it has fired or skipped, and manual runs",
        &[],
        "ScheduleDetails",
    ),
    Operation {
        method: "PUT",
        path: "/api/v1/schedules/{name}",
        id: "writeSchedule",
        summary: "Replaces what a schedule says, or adds it (201)",
        parameters: &[],
        sent: Needs("ScheduleText"),
        statuses: &[200, 201],
        answer: "Done",
    },
    change(
        "DELETE",
        "/api/v1/schedules/{name}",
        "deleteSchedule",
        "Removes a schedule; its tasks stay",
        Nothing,
    ),
    change(
        "POST",
        "/api/v1/schedules/{name}/pause",
        "pauseSchedule",
        "It fires no more until it is resumed",
        May("Reasoned"),
    ),
    change(
        "POST",
        "/api/v1/schedules/{name}/resume",
        "resumeSchedule",
        "It fires again, from now on",
        May("Reasoned"),
    ),
    change(
        "POST",
        "/api/v1/schedules/{name}/run",
        "runSchedule",
        "Creates one task of it, outside of its slots",
        May("Reasoned"),
    ),
    get(
        "/api/v1/audit",
        "listAudit",
        "What operators did, newest first",
        &["before_entry", "limit", "actor", "action", "task", "since", "until"],
        "Audit",
    ),
    get(
        "/api/v1/tokens",
        "listTokens",
        "Tokens, without what would make them usable",
        &[],
        "Tokens",
    ),
    Operation {
        method: "POST",
        path: "/api/v1/tokens",
        id: "createToken",
        summary: "Makes a token; the answer is the only time that anybody sees it",
        parameters: &[],
        sent: Needs("NewToken"),
        statuses: &[201],
        answer: "NewSecret",
    },
    change(
        "DELETE",
        "/api/v1/tokens/{name}",
        "deleteToken",
        "Makes a token no good any more",
        Nothing,
    ),
];

const fn bulk(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        method: "POST",
        path,
        id,
        summary,
        parameters: &[],
        sent: Needs("Choice"),
        statuses: &[200],
        answer: "Bulk",
    }
}
