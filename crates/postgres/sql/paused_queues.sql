SELECT queue, reason, paused_at FROM task_engine.paused_queues ORDER BY queue
