-- By the index created_tasks_by_correlation.
SELECT m.id FROM task_engine.created_tasks m
WHERE m.context->>'correlation_id' = /* flow */ AND m.id >= $1 AND m.id < $2
