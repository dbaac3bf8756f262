-- The newest migration that this file has.
SELECT coalesce(max(version), 0) FROM task_engine_migrations
