-- By its key.
SELECT EXISTS (SELECT 1 FROM task_engine_paused_queues WHERE queue = ?1)
