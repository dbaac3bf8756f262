INSERT INTO task_engine.waiting_tasks
  (task_id, due_at, priority, attempt, retry_number, queue, task_class)
SELECT id, (waiting->>'due_at')::timestamptz, priority, (waiting->>'attempt')::integer,
  (waiting->>'retry_number')::integer, queue, task_class
FROM json_to_recordset($1::text::json)
  AS t(id bigint, priority integer, queue text, task_class text, waiting json)
WHERE waiting IS NOT NULL
