-- What a flow says about a task beyond its row. By its key.
SELECT context, scheduled_at FROM task_engine_created_tasks WHERE id = ?1
