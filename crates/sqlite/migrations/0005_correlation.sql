-- Flows: tasks that belong together share a correlation id, in their context. A
-- task without one begins a flow of its own, whose name is its own id: it has no
-- row in this index. The first comparison spares it the parsing of its context.
CREATE INDEX task_engine_created_by_correlation
    ON task_engine_created_tasks (context ->> '$.correlation_id')
    WHERE context <> '{}' AND context ->> '$.correlation_id' IS NOT NULL;
