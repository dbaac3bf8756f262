-- How much there is. Reads every row, like the checks that it goes with.
SELECT
  (SELECT count(*) FROM task_engine.created_tasks) AS tasks,
  (SELECT count(*) FROM task_engine.waiting_tasks) AS waiting,
  (SELECT count(*) FROM task_engine.held_attempts) AS running,
  (SELECT count(*) FROM task_engine.ended_executions) AS executions,
  (SELECT count(*) FROM task_engine.schedules) AS schedules
