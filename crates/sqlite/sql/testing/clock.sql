-- name: clock
-- How far tests have moved the clock on. One row, by its key.
SELECT ahead FROM testing_clock_of_task_engine WHERE id = 1;

-- name: create_clock
-- Not among the migrations: production has no such table.
CREATE TABLE IF NOT EXISTS testing_clock_of_task_engine (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    ahead INTEGER NOT NULL
) STRICT;

-- name: created
-- The tasks of one class after an id, in the order of their creation. Reads the
-- table; tests have small ones.
SELECT id, task_class, task_parameters, context, queue, priority, scheduled_at, created_at
FROM task_engine_created_tasks
WHERE id > ?1 AND task_class = ?2
ORDER BY id;

-- name: last_task
-- The newest task that has committed.
SELECT coalesce(max(id), 0) FROM task_engine_created_tasks;

-- name: move_clock
INSERT INTO testing_clock_of_task_engine (id, ahead) VALUES (1, ?1)
ON CONFLICT (id) DO UPDATE SET ahead = ?1;
