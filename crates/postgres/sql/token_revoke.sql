UPDATE task_engine.tokens SET revoked_at = now() WHERE name = $1 AND revoked_at IS NULL
