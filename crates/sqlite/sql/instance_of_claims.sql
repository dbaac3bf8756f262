-- What recovery says and needs to know about the engine that is gone. By its key.
SELECT name, host, pid, heartbeat_at, classes
FROM task_engine_instances
WHERE id = ?1
