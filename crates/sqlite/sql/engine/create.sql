-- name: create_task
-- The task as it was created. The waiting row follows in the same transaction.
INSERT INTO task_engine_created_tasks
    (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: enqueue
-- The first attempt of a new task waits. All values are given: nothing is read back.
INSERT INTO task_engine_waiting_tasks
    (task_id, queue, task_class, priority, due_at, attempt, retry_number)
VALUES (?1, ?2, ?3, ?4, ?5, 1, 0);

-- name: unique_take
-- Takes a free key. A write, so that the transaction holds the write lock from now on,
-- also if it has only read so far.
INSERT INTO task_engine_unique_tasks (task_class, unique_key, task_id)
VALUES (?1, ?2, 0)
ON CONFLICT (task_class, unique_key) DO NOTHING;

-- name: unique_assign
-- The key belongs to another task from now on. By its key.
UPDATE task_engine_unique_tasks SET task_id = ?3 WHERE task_class = ?1 AND unique_key = ?2;

-- name: unique_holder
-- The task that has a key, and its time of creation. By keys.
SELECT created.id, created.created_at
FROM task_engine_unique_tasks AS held
JOIN task_engine_created_tasks AS created ON created.id = held.task_id
WHERE held.task_class = ?1 AND held.unique_key = ?2;

-- name: replace_task
-- Replaces the fields of a task: null keeps a field. That others wait for the task stays in
-- its context. By its key.
UPDATE task_engine_created_tasks
SET
    task_parameters = coalesce(?2, task_parameters),
    context = CASE
        WHEN ?3 IS NULL THEN context
        WHEN context ->> '$.awaited' IS 1 THEN json_set(?3, '$.awaited', json('true'))
        ELSE ?3
    END,
    queue = coalesce(?4, queue),
    priority = coalesce(?5, priority),
    scheduled_at = coalesce(?6, scheduled_at)
WHERE id = ?1;

-- name: unique_name
-- Writes the key of a unique task into its context.
UPDATE task_engine_created_tasks SET context = json_set(context, '$.unique_key', ?2) WHERE id = ?1;
