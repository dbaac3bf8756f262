SELECT key FROM task_engine_database_key WHERE is_only = 1
