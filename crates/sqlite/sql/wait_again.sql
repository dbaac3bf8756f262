-- A later attempt waits: after a failure, given back, or sent back by an
-- operator. A task waits at most once; should it wait already, it is not lost.
-- Reads created_tasks by its key.
INSERT INTO task_engine_waiting_tasks
    (task_id, queue, task_class, priority, due_at, attempt, retry_number)
SELECT id, queue, task_class, priority, ?2, ?3, ?4
FROM task_engine_created_tasks
WHERE id = ?1
ON CONFLICT (task_id) DO NOTHING
