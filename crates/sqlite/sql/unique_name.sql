-- The context of a unique task says its key.
UPDATE task_engine_created_tasks SET context = json_set(context, '$.unique_key', ?2) WHERE id = ?1
