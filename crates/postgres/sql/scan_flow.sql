-- By the index created_tasks_by_correlation, and the task whose own id is the
-- name of the flow, if it has no other.
SELECT m.id FROM task_engine.created_tasks m
WHERE m.context->>'correlation_id' = /* flow */ AND m.id >= $1 AND m.id < $2
UNION ALL
SELECT o.id FROM task_engine.created_tasks o
WHERE o.id = /* own */ AND o.id >= $1 AND o.id < $2 AND (o.context->>'correlation_id') IS NULL
