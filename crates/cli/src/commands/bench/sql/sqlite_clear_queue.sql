-- What a measurement has left waiting. The tasks that were there from the
-- beginning have other priorities.
BEGIN IMMEDIATE;
DELETE FROM task_engine_waiting_tasks WHERE priority = 0;
DELETE FROM task_engine_claims;
COMMIT;
