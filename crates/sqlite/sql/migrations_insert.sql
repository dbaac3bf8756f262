-- Remembers that a migration was applied.
INSERT INTO task_engine_migrations (version, name, applied_at) VALUES (?1, ?2, ?3)
