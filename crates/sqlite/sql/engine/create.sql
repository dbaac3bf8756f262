-- name: create_task
-- What was asked. The waiting row follows in the same transaction: creation is
-- whole.
INSERT INTO task_engine_created_tasks
    (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: enqueue
-- The first attempt of a new task waits. All is given: nothing is read back.
INSERT INTO task_engine_waiting_tasks
    (task_id, queue, task_class, priority, due_at, attempt, retry_number)
VALUES (?1, ?2, ?3, ?4, ?5, 1, 0);

-- name: unique_take
-- Takes a key that is free. A write, so that the first one has the
-- file to himself from now on, also in a transaction that has only read so far.
INSERT INTO task_engine_unique_tasks (task_class, unique_key, task_id)
VALUES (?1, ?2, 0)
ON CONFLICT (task_class, unique_key) DO NOTHING;

-- name: unique_assign
-- The key belongs to another task from now on. By its key.
UPDATE task_engine_unique_tasks SET task_id = ?3 WHERE task_class = ?1 AND unique_key = ?2;

-- name: unique_holder
-- Who has a key, and since when it is there. By keys.
SELECT created.id, created.created_at
FROM task_engine_unique_tasks AS held
JOIN task_engine_created_tasks AS created ON created.id = held.task_id
WHERE held.task_class = ?1 AND held.unique_key = ?2;

-- name: replace_task
-- What was asked for is replaced: what is null stays as it is. By its key.
UPDATE task_engine_created_tasks
SET
    task_parameters = coalesce(?2, task_parameters),
    context = coalesce(?3, context),
    queue = coalesce(?4, queue),
    priority = coalesce(?5, priority),
    scheduled_at = coalesce(?6, scheduled_at)
WHERE id = ?1;

-- name: unique_name
-- The context of a unique task says its key.
UPDATE task_engine_created_tasks SET context = json_set(context, '$.unique_key', ?2) WHERE id = ?1;
