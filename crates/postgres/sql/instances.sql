SELECT i.id, i.name, i.host, i.pid, i.process, i.version, i.workers, i.queues, i.classes, i.pools,
  i.started_at, i.heartbeat_at, i.stopped_at, i.lost_at,
  greatest(0, extract(epoch FROM clock_timestamp() - i.heartbeat_at) * 1000000)::bigint AS heartbeat_age_us,
  (extract(epoch FROM i.lease) * 1000000)::bigint AS lease_us,
  held.count AS held
FROM task_engine.instances i
CROSS JOIN LATERAL (
  SELECT count(*) FROM task_engine.held_attempts h WHERE h.instance_id = i.id
) AS held
WHERE ($1::text IS NULL OR i.name = $1)
  AND (i.stopped_at IS NULL AND i.lost_at IS NULL
    OR held.count > 0
    OR i.id = (SELECT max(last.id) FROM task_engine.instances last WHERE last.name = i.name))
ORDER BY i.id DESC
