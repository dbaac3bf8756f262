-- name: report_progress
-- The progress of an attempt. Only a newer version is written. Nothing is kept about a
-- task that retention has removed. By keys alone.
INSERT INTO task_engine_execution_progress
    (task_id, attempt, version, lines, percent, message, reported_at)
SELECT id, ?2, ?3, ?4, ?5, ?6, ?7
FROM task_engine_created_tasks
WHERE id = ?1
ON CONFLICT (task_id, attempt) DO UPDATE SET
    version = excluded.version,
    lines = excluded.lines,
    percent = excluded.percent,
    message = excluded.message,
    reported_at = excluded.reported_at
WHERE version < excluded.version;

-- name: report_line
-- A log line. Its key makes a repeated line change nothing. Nothing is kept about a task
-- that retention has removed. By keys alone.
INSERT INTO task_engine_execution_logs (task_id, attempt, line, logged_at, level, message)
SELECT id, ?2, ?3, ?4, ?5, ?6
FROM task_engine_created_tasks
WHERE id = ?1
ON CONFLICT (task_id, attempt, line) DO NOTHING;

-- name: logs_newest
-- The newest lines of a task's log, the last of them first: a range of the
-- primary key, backwards.
SELECT attempt, line, logged_at, level, message
FROM task_engine_execution_logs
WHERE task_id = ?1 AND (attempt, line) > (?2, ?3) AND (attempt, line) < (?4, ?5)
ORDER BY attempt DESC, line DESC
LIMIT ?6;

-- name: logs
-- Lines of a task's log: a range of the primary key.
SELECT attempt, line, logged_at, level, message
FROM task_engine_execution_logs
WHERE task_id = ?1 AND (attempt, line) > (?2, ?3) AND (attempt, line) < (?4, ?5)
ORDER BY attempt, line
LIMIT ?6;

-- name: execution_reports
-- Progress and log size of one attempt, and the outcome of a cancel request. By keys.
SELECT
    progress.percent, progress.message, progress.reported_at, coalesce(progress.lines, 0),
    coalesce(cancellation.requested_at, request.requested_at),
    cancellation.delivered_at, cancellation.answer
FROM (SELECT ?1 AS task_id, ?2 AS attempt) AS this
LEFT JOIN task_engine_execution_progress AS progress
    ON progress.task_id = this.task_id AND progress.attempt = this.attempt
LEFT JOIN task_engine_cancellations AS cancellation
    ON cancellation.task_id = this.task_id AND cancellation.attempt = this.attempt
LEFT JOIN task_engine_cancel_requests AS request
    ON request.task_id = this.task_id AND request.attempt = this.attempt;

-- name: cancellation
-- The cancel response of an attempt, when it ends. By keys alone.
INSERT INTO task_engine_cancellations (task_id, attempt, requested_at, delivered_at, answer)
VALUES (
    ?1, ?2,
    coalesce(
        (
            SELECT requested_at
            FROM task_engine_cancel_requests
            WHERE task_id = ?1 AND attempt = ?2
        ),
        ?3
    ),
    ?3, ?4
)
ON CONFLICT (task_id, attempt) DO NOTHING;
