-- name: cancellations
-- Finished cancel requests: ranges of the primary key, and of the unique one.
SELECT attempt, requested_at, delivered_at, answer
FROM task_engine_cancellations
WHERE task_id = ?1
UNION ALL
SELECT request.attempt, request.requested_at, NULL, NULL
FROM task_engine_cancel_requests AS request
JOIN task_engine_ended_executions AS ended
    ON ended.task_id = request.task_id AND ended.attempt = request.attempt
WHERE request.task_id = ?1 AND NOT EXISTS (
    SELECT 1 FROM task_engine_cancellations AS done
    WHERE done.task_id = request.task_id AND done.attempt = request.attempt
)
ORDER BY 1;

-- name: dependencies
-- The children of one task. A range of the primary key.
SELECT depends_on
FROM task_engine_task_dependencies
WHERE task_id = ?1 AND condition IS NULL
ORDER BY depends_on;

-- name: conditions
-- What one task depends on. A range of the primary key.
SELECT depends_on, condition
FROM task_engine_task_dependencies
WHERE task_id = ?1 AND condition IS NOT NULL
ORDER BY depends_on;

-- name: flows
-- Every flow.
SELECT correlation_id, name, created_at FROM task_engine_flows ORDER BY id;

-- name: reopened
-- The ends of one task that no longer count. A range of the primary key.
SELECT attempt FROM task_engine_reopened_tasks WHERE task_id = ?1 ORDER BY attempt;

-- name: executions
-- The ended attempts of one task. A range of the primary key.
SELECT
    attempt, retry_number, instance_id, worker, started_at, stopped_at, retry_at, ends_task,
    result, error
FROM task_engine_ended_executions
WHERE task_id = ?1
ORDER BY attempt;

-- name: fired_slots
-- The fired slots of one schedule. A range of the primary key.
SELECT slot, task_id, fired_at FROM task_engine_fired_slots WHERE schedule_id = ?1 ORDER BY slot;

-- name: held
-- All held attempts: as many rows as busy workers.
SELECT
    held.task_id, held.attempt, held.retry_number, held.instance_id, held.claimed_at,
    request.requested_at
FROM task_engine_held_attempts AS held
LEFT JOIN task_engine_cancel_requests AS request
    ON request.task_id = held.task_id AND request.attempt = held.attempt;

-- name: instances
-- Every engine session.
SELECT
    id, name, host, pid, version, workers, lease_ms, queues, pools, classes,
    started_at, heartbeat_at, stopped_at, lost_at
FROM task_engine_instances
ORDER BY id;

-- name: last_ids
-- The highest ids that were ever given.
SELECT
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'task_engine_created_tasks'), 0),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'task_engine_instances'), 0),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'task_engine_schedules'), 0);

-- name: late_results
-- A range of the primary key.
SELECT attempt, arrived_at, result, error
FROM task_engine_late_results
WHERE task_id = ?1
ORDER BY attempt;

-- name: logs
-- A range of the primary key.
SELECT attempt, line, logged_at, level, message
FROM task_engine_execution_logs
WHERE task_id = ?1
ORDER BY attempt, line;

-- name: progress
-- A range of the primary key.
SELECT attempt, version, lines, percent, message, reported_at
FROM task_engine_execution_progress
WHERE task_id = ?1
ORDER BY attempt;

-- name: schedule_events
-- The events of one schedule, by the index on (schedule_id, id).
SELECT kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at
FROM task_engine_schedule_events WHERE schedule_id = ?1 ORDER BY id;

-- name: schedules
-- Every schedule.
SELECT
    id, version, name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at,
    last_slot, last_task_id, created_at, updated_at
FROM task_engine_schedules
ORDER BY id;

-- name: suspended
-- By the key.
SELECT attempt, signals, coalesce(blocked_on, watching), blocked_on IS NOT NULL
FROM task_engine_suspended_tasks
WHERE task_id = ?1;

-- name: tasks
-- Every task with where it waits, in the order of ids: a walk along the keys.
SELECT
    created.id, created.task_class, created.queue, created.priority, created.created_at,
    created.scheduled_at, created.task_parameters, created.context,
    waiting.attempt, waiting.retry_number, waiting.due_at,
    EXISTS (
        SELECT 1 FROM task_engine_unique_tasks AS own
        WHERE own.task_class = created.task_class
            AND own.unique_key = created.context ->> '$.unique_key' AND own.task_id = created.id
    )
FROM task_engine_created_tasks AS created
LEFT JOIN task_engine_waiting_tasks AS waiting ON waiting.task_id = created.id
ORDER BY created.id;
