-- Out of the queue: the first tasks of a lane, of those that are due together.
-- Reads task_engine_waiting_lanes, and nothing that it leaves.
DELETE FROM task_engine_waiting_tasks
WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND due_at = ?4 AND task_id <= ?5
