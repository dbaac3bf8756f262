INSERT INTO task_engine_tokens (name, role, hash, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
