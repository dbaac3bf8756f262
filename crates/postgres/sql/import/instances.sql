-- Lives that are over, wherever they were: one that was alive is so elsewhere.
INSERT INTO task_engine.instances (id, name, host, pid, version, workers, queues, pools, classes,
  lease, started_at, heartbeat_at, stopped_at, lost_at)
OVERRIDING SYSTEM VALUE
SELECT i.id, i.name, i.host, i.pid, i.version, i.workers, i.queues, i.pools, i.classes,
  i.lease_ms * interval '1 millisecond', i.started_at, i.heartbeat_at, i.stopped_at,
  CASE WHEN i.stopped_at IS NULL AND i.lost_at IS NULL THEN clock_timestamp() ELSE i.lost_at END
FROM json_to_recordset($1::text::json) AS i(id bigint, name text, host text, pid integer, version text,
  workers integer, queues text[], pools jsonb, classes jsonb, lease_ms bigint,
  started_at timestamptz, heartbeat_at timestamptz, stopped_at timestamptz, lost_at timestamptz)
