-- Of two at once, one writes: if it was used last before ?3.
UPDATE task_engine_tokens
SET last_used_at = ?2
WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?3)
