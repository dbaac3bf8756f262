-- name: migrations_table
-- The migrations that have been applied to this file. Created here and not in a
-- migration, because it must exist to find the missing ones.
CREATE TABLE IF NOT EXISTS task_engine_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

-- name: migrations_version
-- The newest migration that this file has.
SELECT coalesce(max(version), 0) FROM task_engine_migrations;

-- name: migrations_insert
-- Remembers that a migration was applied.
INSERT INTO task_engine_migrations (version, name, applied_at) VALUES (?1, ?2, ?3);
