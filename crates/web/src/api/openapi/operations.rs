//! All operations of the API.

/// An operation: method, path, and the names of its schemas.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// The name in generated clients.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// Query and header parameters, by their names in the components.
    pub(super) parameters: &'static [&'static str],
    pub(super) body: RequestBody,
    /// The statuses of success.
    pub(super) statuses: &'static [u16],
    /// The schema of the response; empty for plain text.
    pub(super) response: &'static str,
}

pub(super) enum RequestBody {
    None,
    Optional(&'static str),
    Required(&'static str),
}

use RequestBody::{None, Optional, Required};

impl Operation {
    pub(super) fn kind(&self) -> &'static str {
        match (self.id, self.response) {
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
    response: &'static str,
) -> Operation {
    Operation {
        method: "GET",
        path,
        id,
        summary,
        parameters,
        body: None,
        statuses: &[200],
        response,
    }
}

/// A change, which returns a report.
const fn change(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    body: RequestBody,
) -> Operation {
    let parameters: &[&str] = if let None = body { &["reason"] } else { &[] };
    Operation {
        method,
        path,
        id,
        summary,
        parameters,
        body,
        statuses: &[200],
        response: "OperationReport",
    }
}

pub(super) const OPERATIONS: &[Operation] = &[
    get("/api/v1/openapi.json", "openapi", "This document", &[], "Document"),
    get(
        "/api/v1/tasks",
        "listTasks",
        "Tasks, newest first, without their parameters. A page may be short before the end: continue while there is `next`",
        &["filter", "before", "limit"],
        "TaskPage",
    ),
    Operation {
        method: "POST",
        path: "/api/v1/tasks",
        id: "createTasks",
        summary: "Creates one task, or up to 1,000, all or none. 201 if any is new, else 200",
        parameters: &["idempotency_key"],
        body: Required("NewTasks"),
        statuses: &[200, 201],
        response: "CreatedTasks",
    },
    bulk(
        "/api/v1/tasks/retry",
        "retryTasks",
        "Retries failed and cancelled tasks; without a status in the filter, failed ones",
    ),
    bulk(
        "/api/v1/tasks/cancel",
        "cancelTasks",
        "Cancels tasks: at once if they wait, by request if they run",
    ),
    bulk(
        "/api/v1/tasks/rerun",
        "rerunTasks",
        "Creates copies of ended tasks, with the same parameters",
    ),
    bulk(
        "/api/v1/tasks/delete",
        "deleteTasks",
        "Deletes ended tasks with everything that is recorded about them",
    ),
    get("/api/v1/tasks/{id}", "getTask", "A task with its executions", &[], "TaskDetails"),
    change("PATCH", "/api/v1/tasks/{id}", "editTask", "Changes a waiting task", Required("Edit")),
    change("DELETE", "/api/v1/tasks/{id}", "deleteTask", "Deletes an ended task", None),
    get(
        "/api/v1/tasks/{id}/logs",
        "getTaskLogs",
        "Lines of its log, oldest first",
        &["attempt", "after_line", "limit"],
        "Log",
    ),
    get(
        "/api/v1/tasks/{id}/why",
        "whyTask",
        "Why it has its status, and why it does not run",
        &[],
        "Why",
    ),
    change(
        "POST",
        "/api/v1/tasks/{id}/retry",
        "retryTask",
        "Retries an ended task, or makes a waiting one due at once",
        Optional("Reason"),
    ),
    change(
        "POST",
        "/api/v1/tasks/{id}/cancel",
        "cancelTask",
        "Cancels it: at once if it waits, by request if it runs",
        Optional("Reason"),
    ),
    change(
        "POST",
        "/api/v1/tasks/{id}/rerun",
        "rerunTask",
        "Creates a copy with the same parameters",
        Optional("Reason"),
    ),
    get(
        "/api/v1/flows/{correlation_id}",
        "getFlow",
        "The tasks that share a correlation id, oldest first",
        &["after_task", "limit"],
        "Flow",
    ),
    get("/api/v1/stats", "getStats", "Current statistics", &[], "Stats"),
    get(
        "/api/v1/errors",
        "listErrors",
        "Failed tasks grouped by error, the largest group first",
        &["filter", "before", "limit"],
        "Errors",
    ),
    get("/api/v1/checks", "listChecks", "Health checks with remedies", &["depth"], "Checks"),
    get(
        "/api/v1/events",
        "events",
        "Server-sent events named `stats`, one after each change; the data is Stats",
        &[],
        "",
    ),
    get("/api/v1/queues", "listQueues", "Queues and their workers", &[], "Queues"),
    change(
        "POST",
        "/api/v1/queues/{name}/pause",
        "pauseQueue",
        "Pauses a queue: none of its tasks starts",
        Optional("Reason"),
    ),
    change(
        "POST",
        "/api/v1/queues/{name}/resume",
        "resumeQueue",
        "Resumes a queue",
        Optional("Reason"),
    ),
    get("/api/v1/instances", "listInstances", "Engine sessions, newest first", &[], "Instances"),
    change(
        "POST",
        "/api/v1/instances/{name}/recover",
        "recoverInstance",
        "Reclaims the tasks of a dead engine",
        Optional("Reason"),
    ),
    get(
        "/api/v1/schedule-preview",
        "previewSchedule",
        "The next slots of a rule, with notes on clock changes",
        &["rule", "time_zone", "count"],
        "SchedulePreview",
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
        summary: "Creates a schedule",
        parameters: &[],
        body: Required("NewSchedule"),
        statuses: &[201],
        response: "OperationReport",
    },
    get(
        "/api/v1/schedules/{name}",
        "getSchedule",
        "A schedule with its fired and skipped slots and manual runs",
        &[],
        "ScheduleDetails",
    ),
    Operation {
        method: "PUT",
        path: "/api/v1/schedules/{name}",
        id: "writeSchedule",
        summary: "Replaces a schedule, or creates it (201)",
        parameters: &[],
        body: Required("ScheduleDefinition"),
        statuses: &[200, 201],
        response: "OperationReport",
    },
    change(
        "DELETE",
        "/api/v1/schedules/{name}",
        "deleteSchedule",
        "Deletes a schedule; its tasks stay",
        None,
    ),
    change(
        "POST",
        "/api/v1/schedules/{name}/pause",
        "pauseSchedule",
        "Pauses a schedule",
        Optional("Reason"),
    ),
    change(
        "POST",
        "/api/v1/schedules/{name}/resume",
        "resumeSchedule",
        "Resumes a schedule",
        Optional("Reason"),
    ),
    change(
        "POST",
        "/api/v1/schedules/{name}/run",
        "runSchedule",
        "Creates one task of it now",
        Optional("Reason"),
    ),
    get(
        "/api/v1/audit",
        "listAudit",
        "The audit, newest first",
        &["before_entry", "limit", "actor", "action", "task", "since", "until"],
        "Audit",
    ),
    get("/api/v1/tokens", "listTokens", "Tokens, without their secrets", &[], "Tokens"),
    Operation {
        method: "POST",
        path: "/api/v1/tokens",
        id: "createToken",
        summary: "Creates a token; only this response contains its secret",
        parameters: &[],
        body: Required("NewToken"),
        statuses: &[201],
        response: "CreatedToken",
    },
    change("DELETE", "/api/v1/tokens/{name}", "deleteToken", "Revokes a token", None),
];

const fn bulk(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        method: "POST",
        path,
        id,
        summary,
        parameters: &[],
        body: Required("Selection"),
        statuses: &[200],
        response: "BulkReport",
    }
}
