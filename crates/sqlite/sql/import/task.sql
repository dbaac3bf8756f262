INSERT INTO task_engine_created_tasks
    (id, task_class, queue, priority, created_at, scheduled_at, task_parameters, context)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
