-- Few.
SELECT queue, reason, paused_at FROM task_engine_paused_queues ORDER BY queue
