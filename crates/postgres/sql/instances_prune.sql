-- Removes up to $2 lives that ended more than $1 microseconds ago. Not those that
-- hold something, or that history names; not the last that declared these secrets
-- (see instances.sql); and the last of a name only after all others of it.
--
-- There is no index from a life to its executions. But a life executes only what
-- was created before it ended, and the oldest tasks come first by the key: so
-- what they say is enough for the lives that ended before the youngest of them
-- was created. A day between, because ids and times are in order only roughly.
WITH oldest AS MATERIALIZED (
  SELECT id, created_at FROM task_engine.created_tasks ORDER BY id LIMIT 10000
), life AS MATERIALIZED (
  SELECT id, classes, coalesce(stopped_at, lost_at) AS ended_at,
    id = min(id) OVER (PARTITION BY name) AS is_first,
    id = max(id) OVER (PARTITION BY name) AS is_last
  FROM task_engine.instances
)
DELETE FROM task_engine.instances WHERE id = ANY (ARRAY(
  SELECT id FROM life
  WHERE ended_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
    AND (is_first OR NOT is_last)
    AND NOT (is_last AND id IN (
      SELECT max(id) FROM life WHERE is_last AND classes @? '$.*.secret[*]' GROUP BY classes))
    AND id NOT IN (SELECT instance_id FROM task_engine.claims)
    AND ended_at < (SELECT CASE WHEN count(*) < 10000 THEN 'infinity'
                      ELSE max(created_at) - interval '1 day' END FROM oldest)
    AND id NOT IN (SELECT e.instance_id FROM oldest o
                   JOIN task_engine.ended_executions e ON e.task_id = o.id
                   WHERE e.instance_id IS NOT NULL)
  ORDER BY id LIMIT $2::bigint))
