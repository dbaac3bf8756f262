-- How many tasks with ids in a row retention has left. By their key.
SELECT count(*) FROM task_engine_created_tasks WHERE id BETWEEN ?1 AND ?2
