-- What has been applied to this file. Created here and not in a migration,
-- because it must be there to ask which migrations are missing.
CREATE TABLE IF NOT EXISTS task_engine_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT
