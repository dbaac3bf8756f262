-- Removes tasks that a measurement left waiting. Tasks inserted before the
-- measurement have other priorities, or wait for days.
BEGIN IMMEDIATE;
DELETE FROM task_engine_waiting_tasks 
WHERE priority = 0 AND due_at < (unixepoch() + 86400) * 1000000;
DELETE FROM task_engine_claims;
DELETE FROM task_engine_limits;
DELETE FROM task_engine_limit_keys;
DELETE FROM task_engine_limit_starts;
COMMIT;
