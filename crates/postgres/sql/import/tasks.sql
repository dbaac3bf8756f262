INSERT INTO task_engine.created_tasks (id, task_class, queue, priority, created_at, scheduled_at,
  task_parameters, context)
OVERRIDING SYSTEM VALUE
SELECT id, task_class, queue, priority, created_at, scheduled_at, task_parameters, context
FROM json_populate_recordset(NULL::task_engine.created_tasks, $1::text::json)
