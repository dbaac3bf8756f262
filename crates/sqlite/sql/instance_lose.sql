-- Ends a life whose lease has run out, or whose process is known to be gone (?3).
-- A heartbeat that came first wins. By its key.
UPDATE task_engine_instances
SET lost_at = ?2
WHERE id = ?1
    AND stopped_at IS NULL
    AND lost_at IS NULL
    AND (?3 OR ?2 - heartbeat_at > lease_ms * 1000)
