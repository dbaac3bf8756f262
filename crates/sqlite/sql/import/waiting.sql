INSERT INTO task_engine_waiting_tasks
    (task_id, queue, task_class, priority, due_at, attempt, retry_number)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
