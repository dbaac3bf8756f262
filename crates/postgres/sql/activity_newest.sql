-- One probe at the end of the primary key.
SELECT now() AS now, (SELECT max(id) FROM task_engine.created_tasks) AS newest
