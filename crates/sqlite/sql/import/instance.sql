-- A life that is over, wherever it was.
INSERT INTO task_engine_instances (
    id, name, host, pid, version, workers, lease_ms, queues, pools, classes,
    started_at, heartbeat_at, stopped_at, lost_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
