-- The task whose own id is the name of the flow, if it has no other.
SELECT o.id FROM task_engine.created_tasks o
WHERE o.id = /* own */ AND o.id >= $1 AND o.id < $2 AND (o.context->>'correlation_id') IS NULL
