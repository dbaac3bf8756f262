SELECT max(version) AS version FROM task_engine.migrations
