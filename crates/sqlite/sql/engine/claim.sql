-- name: instance_alive
-- Whether a session has not ended. By its key.
SELECT EXISTS (
    SELECT 1
    FROM task_engine_instances
    WHERE id = ?1 AND stopped_at IS NULL AND lost_at IS NULL
);

-- name: claim_insert
-- The engine holds the batch from here on. The id is the engine's own choice.
INSERT INTO task_engine_claims (id, instance_id, claimed_at, attempts) VALUES (?1, ?2, ?3, ?4);

-- name: claim_lanes
-- The lanes of a claimer (queue, class, priority) that have waiting tasks, from
-- priority ?3 up, those of paused queues left out, highest priority first. Each step of the recursion is one search in the index
-- task_engine_waiting_lanes, whatever the number of tasks in a lane; and because
-- of the ORDER BY inside, rows come one by one in their final order, so that a
-- claim that is full stops the search.
WITH RECURSIVE lanes (queue, task_class, priority) AS (
    SELECT
        queues.value,
        classes.value,
        (
            SELECT max(waiting.priority)
            FROM task_engine_waiting_tasks AS waiting
            WHERE waiting.queue = queues.value AND waiting.task_class = classes.value
        )
    FROM json_each(?1) AS queues CROSS JOIN json_each(?2) AS classes
    WHERE NOT EXISTS (
        SELECT 1 FROM task_engine_paused_queues AS paused WHERE paused.queue = queues.value
    )
    UNION ALL
    SELECT
        lanes.queue,
        lanes.task_class,
        (
            SELECT max(waiting.priority)
            FROM task_engine_waiting_tasks AS waiting
            WHERE waiting.queue = lanes.queue
                AND waiting.task_class = lanes.task_class
                AND waiting.priority < lanes.priority
        )
    FROM lanes
    WHERE lanes.priority > ?3
    ORDER BY 3 DESC
)
SELECT queue, task_class, priority FROM lanes WHERE priority >= ?3;

-- name: waiting_delete_due_at
-- Deletes the first tasks of a lane that are due at the same time. Reads only the deleted
-- rows of task_engine_waiting_lanes.
DELETE FROM task_engine_waiting_tasks
WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND due_at = ?4 AND task_id <= ?5;

-- name: waiting_delete_due_before
-- Deletes the tasks of a lane that are due before a time. Reads only the deleted rows of
-- task_engine_waiting_lanes.
DELETE FROM task_engine_waiting_tasks
WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND due_at < ?4;

-- name: claim_heads
-- The next tasks of one lane, due or not: the first one that is not due gives the time of
-- the next claim. Reads task_engine_waiting_lanes from the last position: of tasks that
-- are due at the same time, it reads those again that this claim has taken. The fields of
-- a task are read by its key.
SELECT
    waiting.task_id, waiting.due_at, waiting.attempt, waiting.retry_number,
    created.task_parameters, created.context
FROM task_engine_waiting_tasks AS waiting
LEFT JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
WHERE waiting.queue = ?1
    AND waiting.task_class = ?2
    AND waiting.priority = ?3
    AND (waiting.due_at, waiting.task_id) > (?4, ?5)
ORDER BY waiting.due_at, waiting.task_id
LIMIT ?6;
