-- What was asked. By its key.
SELECT task_parameters, context FROM task_engine_created_tasks WHERE id = ?1
