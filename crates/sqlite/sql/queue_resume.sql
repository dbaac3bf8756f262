-- By its key.
DELETE FROM task_engine_paused_queues WHERE queue = ?1
