-- name: token_add
INSERT INTO task_engine.tokens (name, role, hash, created_at, expires_at)
VALUES ($1, $2, $3, now(), now() + $4::bigint * interval '1 microsecond')
ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
RETURNING id;

-- name: tokens
-- Few.
SELECT id, name, role, created_at, expires_at, last_used_at, revoked_at
FROM task_engine.tokens ORDER BY id DESC;

-- name: token_revoke
UPDATE task_engine.tokens SET revoked_at = now() WHERE name = $1 AND revoked_at IS NULL;

-- name: token_by_hash
-- By its key; reads only, but for once in $2 microseconds.
SELECT id, name, role, created_at, expires_at, last_used_at, revoked_at,
  last_used_at IS NULL OR last_used_at < now() - $2::bigint * interval '1 microsecond' AS is_stale
FROM task_engine.tokens
WHERE hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- name: token_touch
-- Of two at once, one writes.
UPDATE task_engine.tokens SET last_used_at = now()
WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < now() - $2::bigint * interval '1 microsecond')
RETURNING last_used_at;
