-- By task_engine_tokens_by_name.
UPDATE task_engine_tokens SET revoked_at = ?2 WHERE name = ?1 AND revoked_at IS NULL
