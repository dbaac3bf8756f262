-- Flows: tasks that belong together share a correlation id, in their context. A
-- task without one begins a flow of its own, whose name is its own id: it has no
-- row in this index and pays for none.
ALTER TABLE task_engine.created_tasks
  -- What cannot be indexed must not be taken: a row of an index has 2700 bytes.
  ADD CONSTRAINT "a correlation id is a text of 1 to 200 bytes"
  CHECK (octet_length(context->>'correlation_id') BETWEEN 1 AND 200
    AND jsonb_typeof(context->'correlation_id') IN ('string', 'null'));

CREATE INDEX created_tasks_by_correlation
  ON task_engine.created_tasks ((context->>'correlation_id'), id)
  WHERE (context->>'correlation_id') IS NOT NULL;
