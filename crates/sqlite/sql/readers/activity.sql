-- name: activity_newest
-- One search at the end of the table.
SELECT max(id) FROM task_engine_created_tasks;

-- name: activity_held
-- As many rows as there are busy workers, each by its key.
SELECT
    held.task_id, held.attempt, held.instance_id, held.claimed_at,
    created.task_class, created.queue, created.priority,
    progress.percent, progress.message, progress.reported_at
FROM task_engine_held_attempts AS held
CROSS JOIN task_engine_created_tasks AS created ON created.id = held.task_id
LEFT JOIN task_engine_execution_progress AS progress
    ON progress.task_id = held.task_id AND progress.attempt = held.attempt
ORDER BY held.claimed_at, held.task_id;

-- name: activity_next
-- The first ?5 tasks of a lane that are due by ?4: read from the beginning of its
-- part of task_engine_waiting_lanes.
SELECT task_id, due_at
FROM task_engine_waiting_tasks
WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND due_at <= ?4
ORDER BY due_at, task_id
LIMIT ?5;

-- name: endings
-- Attempts that ended at ?4 or later, of the tasks from ?1 to ?2, of which the
-- last ?3 attempts are looked at. A range of the primary key, read from its end;
-- the rest by keys. A snooze is no error.
SELECT
    ended.task_id, ended.attempt, created.task_class, created.queue,
    ended.instance_id, instance.name, ended.started_at, ended.stopped_at,
    ended.ends_task, ended.retry_at,
    CASE WHEN ended.ends_task IS NOT NULL OR ended.error ->> '$.exception' IS NOT 'Snoozed' THEN substr(
        coalesce((ended.error ->> '$.exception') || ': ' || (ended.error ->> '$.message'), ended.error),
        1, 500
    ) END
FROM (
    SELECT *
    FROM task_engine_ended_executions
    WHERE task_id BETWEEN ?1 AND ?2
    ORDER BY task_id DESC, attempt DESC
    LIMIT ?3
) AS ended
CROSS JOIN task_engine_created_tasks AS created ON created.id = ended.task_id
LEFT JOIN task_engine_instances AS instance ON instance.id = ended.instance_id
WHERE ended.stopped_at >= ?4;

-- name: failure_counts
-- How many tasks ended in this status (?1) and were not sent back, up to ?2.
-- Reads task_engine_failed_or_cancelled and searches keys; of those that were sent
-- back, what is held now is few, and is taken off afterwards.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.ends_task <> 'stopped'
                AND ended.ends_task = ?1
                AND NOT EXISTS (
                    SELECT 1
                    FROM task_engine_ended_executions AS later
                    WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
                )
                AND NOT EXISTS (
                    SELECT 1
                    FROM task_engine_waiting_tasks AS waiting
                    WHERE waiting.task_id = ended.task_id
                )
            LIMIT ?2
        )
    ) - (
        SELECT count(*)
        FROM task_engine_held_attempts AS held
        WHERE (
            SELECT last.ends_task
            FROM task_engine_ended_executions AS last
            WHERE last.task_id = held.task_id
            ORDER BY last.attempt DESC
            LIMIT 1
        ) = ?1
    );

-- name: queue_position_of
-- A task that waits. By its key.
SELECT priority, due_at FROM task_engine_waiting_tasks WHERE task_id = ?1;

-- name: queue_position_count
-- How many tasks of a lane come before (?4, ?5), up to ?6: a range of
-- task_engine_waiting_lanes.
SELECT count(*)
FROM (
    SELECT 1
    FROM task_engine_waiting_tasks
    WHERE queue = ?1 AND task_class = ?2 AND priority = ?3
        AND (due_at, task_id) < (?4, ?5)
    LIMIT ?6
);
