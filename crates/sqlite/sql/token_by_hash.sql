-- By its key.
SELECT id, name, role, created_at, expires_at, last_used_at, revoked_at
FROM task_engine_tokens
WHERE hash = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)
