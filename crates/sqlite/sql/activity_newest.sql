-- One search at the end of the table.
SELECT max(id) FROM task_engine_created_tasks
