-- Of two at once, one writes.
UPDATE task_engine.tokens SET last_used_at = now()
WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < now() - $2::bigint * interval '1 microsecond')
RETURNING last_used_at
