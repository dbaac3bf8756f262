-- A queue that is paused here already stays so, for its own reason.
INSERT INTO task_engine_paused_queues (queue, reason, paused_at) VALUES (?1, ?2, ?3)
ON CONFLICT DO NOTHING
