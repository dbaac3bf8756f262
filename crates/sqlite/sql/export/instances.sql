-- Every life of an engine.
SELECT
    id, name, host, pid, version, workers, lease_ms, queues, pools, classes,
    started_at, heartbeat_at, stopped_at, lost_at
FROM task_engine_instances
ORDER BY id
