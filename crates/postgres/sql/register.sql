INSERT INTO task_engine.instances
  (name, host, pid, process, version, workers, queues, classes, lease, pools, started_at, heartbeat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::bigint * interval '1 microsecond', $10,
        clock_timestamp(), clock_timestamp())
RETURNING id
