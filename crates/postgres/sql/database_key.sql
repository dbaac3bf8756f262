SELECT key FROM task_engine.database_key
