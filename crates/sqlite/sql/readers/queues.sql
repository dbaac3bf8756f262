-- name: queue_is_paused
-- By its key.
SELECT EXISTS (SELECT 1 FROM task_engine_paused_queues WHERE queue = ?1);

-- name: queue_pause
-- A queue is paused, or was: then a new reason replaces the old one. By its key.
INSERT INTO task_engine_paused_queues AS paused (queue, reason, paused_at)
VALUES (?1, ?2, ?3)
ON CONFLICT (queue) DO UPDATE SET reason = coalesce(excluded.reason, paused.reason);

-- name: queue_resume
-- By its key.
DELETE FROM task_engine_paused_queues WHERE queue = ?1;

-- name: queues_paused
-- Few.
SELECT queue, reason, paused_at FROM task_engine_paused_queues ORDER BY queue;

-- name: queues_running
-- As many as there are busy workers, each by its key.
SELECT created.queue, count(*)
FROM task_engine_held_attempts AS held
CROSS JOIN task_engine_created_tasks AS created ON created.id = held.task_id
GROUP BY created.queue;

-- name: queues_served
-- Reads the partial index task_engine_instances_live_by_name.
SELECT DISTINCT queue.value
FROM task_engine_instances AS session, json_each(session.queues) AS queue
WHERE session.stopped_at IS NULL AND session.lost_at IS NULL;

-- name: queues_next_lane
-- The next lane that has waiting tasks: three searches in
-- task_engine_waiting_lanes, as in pulse_next_class.sql.
SELECT queue, task_class, priority
FROM (
    SELECT queue, task_class, priority
    FROM task_engine_waiting_tasks
    WHERE queue = ?1 AND task_class = ?2 AND priority > ?3
    ORDER BY priority
    LIMIT 1
)
UNION ALL
SELECT queue, task_class, priority
FROM (
    SELECT queue, task_class, priority
    FROM task_engine_waiting_tasks
    WHERE queue = ?1 AND task_class > ?2
    ORDER BY task_class, priority
    LIMIT 1
)
UNION ALL
SELECT queue, task_class, priority
FROM (
    SELECT queue, task_class, priority
    FROM task_engine_waiting_tasks
    WHERE queue > ?1
    ORDER BY queue, task_class, priority
    LIMIT 1
)
LIMIT 1;

-- name: queues_count
-- How many tasks of a lane are due by ?4, and how many later, up to ?5 each: two
-- ranges of task_engine_waiting_lanes.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM task_engine_waiting_tasks
            WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND due_at <= ?4
            LIMIT ?5
        )
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM task_engine_waiting_tasks
            WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND due_at > ?4
            LIMIT ?5
        )
    );
