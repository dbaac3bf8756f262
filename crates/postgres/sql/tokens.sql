-- Few.
SELECT id, name, role, created_at, expires_at, last_used_at, revoked_at
FROM task_engine.tokens ORDER BY id DESC
