-- By its key; reads only, but for once in $2 microseconds.
SELECT id, name, role, created_at, expires_at, last_used_at, revoked_at,
  last_used_at IS NULL OR last_used_at < now() - $2::bigint * interval '1 microsecond' AS is_stale
FROM task_engine.tokens
WHERE hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
