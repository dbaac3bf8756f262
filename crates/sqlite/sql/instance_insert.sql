-- A life begins. The unique index task_engine_living_instances refuses a name
-- that another life has which is not over; then nothing is inserted.
INSERT INTO task_engine_instances (
    name, host, pid, process, version, workers, lease_ms, queues, classes,
    started_at, heartbeat_at, pools
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11)
ON CONFLICT DO NOTHING
