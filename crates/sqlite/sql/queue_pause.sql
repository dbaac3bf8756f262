-- A queue is paused, or was: then a new reason replaces the old one. By its key.
INSERT INTO task_engine_paused_queues AS paused (queue, reason, paused_at)
VALUES (?1, ?2, ?3)
ON CONFLICT (queue) DO UPDATE SET reason = coalesce(excluded.reason, paused.reason)
