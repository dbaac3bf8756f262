-- Every life of an engine.
SELECT id, name, host, pid, version, workers, (extract(epoch FROM lease) * 1000)::bigint AS lease_ms,
  queues, task_engine.readable(pools) AS pools, task_engine.readable(classes) AS classes, started_at, heartbeat_at, stopped_at, lost_at
FROM task_engine.instances ORDER BY id
