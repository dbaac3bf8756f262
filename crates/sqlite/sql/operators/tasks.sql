-- name: prune_failed_or_cancelled
-- Tasks that failed or were cancelled long enough ago, and for which this was
-- the last attempt, and that no open task waits for. Reads the index
-- task_engine_failed_or_cancelled.
SELECT ended.task_id
FROM task_engine_ended_executions AS ended
WHERE ended.ends_task <> 'stopped'
    AND ended.ends_task = ?1
    AND ended.stopped_at <= ?2
    AND NOT EXISTS (
        SELECT 1
        FROM task_engine_ended_executions AS later
        WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
    )
    AND NOT EXISTS (
        SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = ended.task_id
    )
    AND ended.task_id NOT IN (SELECT task_id FROM task_engine_held_attempts)
    AND NOT EXISTS (
        SELECT 1 FROM task_engine_kept_children AS kept WHERE kept.task_id = ended.task_id
    )
ORDER BY ended.task_id
LIMIT ?3;

-- name: prune_unique_tasks
-- Retention: by key, in the transaction that chose the task, before its context
-- is gone. A key that has gone over to another task stays.
DELETE FROM task_engine_unique_tasks
WHERE task_id = ?1
    AND (task_class, unique_key) = (
        SELECT task_class, context ->> '$.unique_key'
        FROM task_engine_created_tasks
        WHERE id = ?1
    );

-- name: prune_created_tasks
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_created_tasks WHERE id = ?1;

-- name: prune_ended_executions
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_ended_executions WHERE task_id = ?1;

-- name: prune_late_results
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_late_results WHERE task_id = ?1;

-- name: prune_cancel_requests
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_cancel_requests WHERE task_id = ?1;

-- name: prune_cancellations
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_cancellations WHERE task_id = ?1;

-- name: prune_execution_progress
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_execution_progress WHERE task_id = ?1;

-- name: prune_execution_logs
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_execution_logs WHERE task_id = ?1;

-- name: prune_fired_slots
DELETE FROM task_engine_fired_slots WHERE task_id = ?1;

-- name: prune_steps
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_steps WHERE task_id = ?1;

-- name: prune_signals
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_signals WHERE task_id = ?1;

-- name: prune_task_dependencies
-- Retention: by key, in the transaction that chose the task. Tasks that depended on it
-- keep their rows: a removed child has ended.
DELETE FROM task_engine_task_dependencies WHERE task_id = ?1;

-- name: prune_suspended_tasks
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_suspended_tasks WHERE task_id = ?1;

-- name: prune_reopened_tasks
-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_reopened_tasks WHERE task_id = ?1;

-- name: is_kept_child
-- Whether an open task depends on this one. By task_engine_task_dependencies_by_child, and
-- the keys of its parents.
SELECT 1 FROM task_engine_kept_children WHERE task_id = ?1;

-- name: waiting_one
-- The place of one task in the queue. By its key.
SELECT due_at, attempt, retry_number, substr(queue, 1, 1) = char(30)
FROM task_engine_waiting_tasks
WHERE task_id = ?1;

-- name: last_ending
-- How the last attempt of a task ended. The end of a range of the primary key.
SELECT attempt, ends_task
FROM task_engine_ended_executions
WHERE task_id = ?1
ORDER BY attempt DESC
LIMIT 1;

-- name: cancel_request
-- A request to cancel a running attempt; its engine, or recovery, writes the ending.
INSERT INTO task_engine_cancel_requests (task_id, attempt, requested_at)
VALUES (?1, ?2, ?3)
ON CONFLICT (task_id, attempt) DO NOTHING;

-- name: time_before_first_attempt
-- The time of a task that no engine has held.
SELECT scheduled_at FROM task_engine_created_tasks
WHERE id = ?1 AND NOT EXISTS (
    SELECT 1 FROM task_engine_ended_executions WHERE task_id = ?1 AND instance_id IS NOT NULL
);

-- name: waiting_delete
-- Out of the queue. By its key.
DELETE FROM task_engine_waiting_tasks WHERE task_id = ?1;

-- name: prune_stopped
-- Tasks that did their work, oldest first, for as long as the caller reads on.
-- There is no index for this: ids are given in the order of time, so the caller
-- stops at the first task that was created too late to have ended early enough.
-- What has stopped never runs again, so there is nothing else to look at.
SELECT created.id, created.created_at, ended.stopped_at
FROM task_engine_created_tasks AS created
CROSS JOIN task_engine_ended_executions AS ended ON ended.task_id = created.id
WHERE ended.ends_task = 'stopped'
ORDER BY created.id;
