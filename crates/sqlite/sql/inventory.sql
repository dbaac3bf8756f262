-- How much there is. Reads every row, like the checks that it goes with.
SELECT
    (SELECT count(*) FROM task_engine_created_tasks),
    (SELECT count(*) FROM task_engine_waiting_tasks),
    (SELECT count(*) FROM task_engine_held_attempts),
    (SELECT count(*) FROM task_engine_ended_executions),
    (SELECT count(*) FROM task_engine_schedules)
