-- What was asked. The waiting row follows in the same transaction: creation is
-- whole.
INSERT INTO task_engine_created_tasks
    (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
