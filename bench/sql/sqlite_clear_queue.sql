-- Removes tasks that a measurement left waiting. Tasks inserted before the
-- measurement have other priorities.
BEGIN IMMEDIATE;
DELETE FROM task_engine_waiting_tasks WHERE priority = 0;
DELETE FROM task_engine_claims;
COMMIT;
