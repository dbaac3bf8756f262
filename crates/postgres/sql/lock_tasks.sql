-- Whoever sends tasks back to wait or removes them locks them first, and looks
-- in a second statement: in one, the look could be older than the lock.
SELECT id FROM task_engine.created_tasks WHERE id = ANY ($1) ORDER BY id FOR UPDATE
