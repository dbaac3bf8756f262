-- name: token_add
INSERT INTO task_engine_tokens (name, role, hash, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING;

-- name: tokens
-- Few.
SELECT id, name, role, created_at, expires_at, last_used_at, revoked_at
FROM task_engine_tokens
ORDER BY id DESC;

-- name: token_revoke
-- By task_engine_tokens_by_name.
UPDATE task_engine_tokens SET revoked_at = ?2 WHERE name = ?1 AND revoked_at IS NULL;

-- name: token_by_hash
-- By its key.
SELECT id, name, role, created_at, expires_at, last_used_at, revoked_at
FROM task_engine_tokens
WHERE hash = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2);

-- name: token_touch
-- Of two at once, one writes: if it was used last before ?3.
UPDATE task_engine_tokens
SET last_used_at = ?2
WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?3);
