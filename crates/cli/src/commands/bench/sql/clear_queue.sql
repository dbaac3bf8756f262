-- What a measurement has left waiting. The tasks that were there from the
-- beginning have other priorities.
DELETE FROM task_engine.waiting_tasks WHERE priority = 0;
DELETE FROM task_engine.claims;
