-- A key that a task here has stays with it.
INSERT INTO task_engine.unique_tasks (task_class, unique_key, task_id)
SELECT task_class, context->>'unique_key', id
FROM json_to_recordset($1::text::json)
  AS t(id bigint, task_class text, context json, has_unique_key boolean)
WHERE has_unique_key
ON CONFLICT DO NOTHING
