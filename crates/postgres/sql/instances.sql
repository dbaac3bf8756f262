-- Lives of one name or of all, newest first: those that are not over, those that
-- still hold something, and the last of each name. Without a name also not those
-- that ended before $2 (microseconds ago), but for the last that declared these
-- secrets: they hold for the tasks that are left.
WITH life AS MATERIALIZED (
  SELECT i.*, coalesce(i.stopped_at, i.lost_at) AS ended_at,
    i.id = max(i.id) OVER (PARTITION BY i.name) AS is_last,
    -- Most hold nothing, and are not counted for.
    CASE WHEN i.id IN (SELECT instance_id FROM task_engine.claims)
      THEN (SELECT count(*) FROM task_engine.held_attempts h WHERE h.instance_id = i.id)
      ELSE 0
    END AS held
  FROM task_engine.instances i
  WHERE $1::text IS NULL OR i.name = $1
)
SELECT id, name, host, pid, process, version, workers, queues, task_engine.readable(classes) AS classes, task_engine.readable(pools) AS pools,
  started_at, heartbeat_at, stopped_at, lost_at,
  greatest(0, extract(epoch FROM clock_timestamp() - heartbeat_at) * 1000000)::bigint AS heartbeat_age_us,
  (extract(epoch FROM lease) * 1000000)::bigint AS lease_us,
  held
FROM life
WHERE ended_at IS NULL
  OR held > 0
  OR is_last AND (
    $1::text IS NOT NULL
    OR ended_at >= clock_timestamp() - $2::bigint * interval '1 microsecond'
    OR id IN (SELECT max(id) FROM life
              WHERE is_last AND classes @? '$.*.secret[*]' GROUP BY classes))
ORDER BY id DESC
