-- name: held
-- All held attempts, with the names of their engines. As many rows as busy workers.
SELECT held.task_id, held.attempt, held.retry_number, held.claimed_at, instance.name
FROM task_engine_held_attempts AS held
LEFT JOIN task_engine_instances AS instance ON instance.id = held.instance_id;

-- name: page_all
-- A page of all tasks. Walks the primary key backwards.
SELECT id
FROM task_engine_created_tasks
WHERE id < ?1 AND (?2 IS NULL OR task_class = ?2)
ORDER BY id DESC
LIMIT ?3;

-- name: page_waiting
-- A page of waiting tasks. Walks the primary key of the queue backwards.
SELECT task_id
FROM task_engine_waiting_tasks
WHERE task_id < ?1 AND (?2 IS NULL OR task_class = ?2)
ORDER BY task_id DESC
LIMIT ?3;

-- name: page_running
-- A page of running tasks, from the claims.
SELECT DISTINCT held.task_id
FROM task_engine_held_attempts AS held
JOIN task_engine_created_tasks AS created ON created.id = held.task_id
WHERE held.task_id < ?1 AND (?2 IS NULL OR created.task_class = ?2)
ORDER BY held.task_id DESC
LIMIT ?3;

-- name: page_stopped
-- A page of succeeded tasks: most are, so it walks the primary key backwards. A succeeded
-- task never runs again, so no other table is read.
SELECT ended.task_id
FROM task_engine_ended_executions AS ended
CROSS JOIN task_engine_created_tasks AS created ON created.id = ended.task_id
WHERE ended.task_id < ?1
    AND ended.ends_task = 'stopped'
    AND (?2 IS NULL OR created.task_class = ?2)
ORDER BY ended.task_id DESC
LIMIT ?3;

-- name: page_failed_or_cancelled
-- A page of tasks that failed, or that were cancelled (?4), and that no operator has
-- sent back since. Walks the index task_engine_failed_or_cancelled backwards.
SELECT ended.task_id
FROM task_engine_ended_executions AS ended
CROSS JOIN task_engine_created_tasks AS created ON created.id = ended.task_id
WHERE ended.ends_task <> 'stopped'
    AND ended.ends_task = ?4
    AND ended.task_id < ?1
    AND (?2 IS NULL OR created.task_class = ?2)
    AND NOT EXISTS (
        SELECT 1
        FROM task_engine_ended_executions AS later
        WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
    )
    AND NOT EXISTS (
        SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = ended.task_id
    )
    AND ended.task_id NOT IN (SELECT task_id FROM task_engine_held_attempts)
ORDER BY ended.task_id DESC
LIMIT ?3;

-- name: task_request
-- The parameters and context of a task. By its key.
SELECT task_parameters, context FROM task_engine_created_tasks WHERE id = ?1;

-- name: task_cancel_requested
-- Whether this attempt has a cancel request. By its key.
SELECT EXISTS (
    SELECT 1 FROM task_engine_cancel_requests WHERE task_id = ?1 AND attempt = ?2
);

-- name: task
-- One task, where it waits, and how its last attempt ended. By keys alone. Held attempts
-- are read separately, once for a whole page.
SELECT
    created.task_class, created.queue, created.priority, created.created_at, created.scheduled_at,
    waiting.due_at, waiting.retry_number,
    ended.retry_number, ended.stopped_at, ended.error, ended.ends_task, ended.retry_at,
    instance.name,
    -- An attempt that no engine ever held was cancelled while it waited.
    (
        SELECT count(every.instance_id)
        FROM task_engine_ended_executions AS every
        WHERE every.task_id = created.id
    ),
    coalesce(substr(waiting.queue, 1, 1) = char(30), 0)
FROM task_engine_created_tasks AS created
LEFT JOIN task_engine_waiting_tasks AS waiting ON waiting.task_id = created.id
LEFT JOIN task_engine_ended_executions AS ended
    ON ended.task_id = created.id
    AND ended.attempt = (
        SELECT max(last.attempt) FROM task_engine_ended_executions AS last WHERE last.task_id = created.id
    )
LEFT JOIN task_engine_instances AS instance ON instance.id = ended.instance_id
WHERE created.id = ?1;

-- name: task_executions
-- The ended attempts of one task, oldest first. A range of the primary key.
SELECT
    ended.attempt, ended.retry_number, instance.name, ended.worker,
    ended.started_at, ended.stopped_at, ended.result, ended.error, ended.ends_task, ended.retry_at,
    ended.instance_id IS NOT NULL
FROM task_engine_ended_executions AS ended
LEFT JOIN task_engine_instances AS instance ON instance.id = ended.instance_id
WHERE ended.task_id = ?1
ORDER BY ended.attempt;

-- name: task_late_results
-- The late results of one task. Ranges of primary keys.
SELECT late.attempt, late.arrived_at, ended.stopped_at, late.result, late.error
FROM task_engine_late_results AS late
JOIN task_engine_ended_executions AS ended
    ON ended.task_id = late.task_id AND ended.attempt = late.attempt
WHERE late.task_id = ?1
ORDER BY late.attempt;
