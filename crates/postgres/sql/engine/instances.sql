-- name: register
INSERT INTO task_engine.instances
  (name, host, pid, process, version, workers, queues, classes, lease, pools, started_at, heartbeat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::bigint * interval '1 microsecond', $10,
        clock_timestamp(), clock_timestamp())
RETURNING id;

-- name: heartbeat
-- Renews a lease and tells the engine, in one round trip, what it should know.
-- A cancel request is answered once its attempt has ended the task. If the
-- attempt ended before its engine got the request, and the task continues, the
-- request lingers: it was for the task. A finished request is moved to
-- cancellations; the response of its attempt is there already, or there is none. Its
-- task is locked against retention, and left for the next beat if it cannot be.
WITH RECURSIVE beat AS (
  UPDATE task_engine.instances SET heartbeat_at = clock_timestamp()
  WHERE id = $1 AND stopped_at IS NULL AND lost_at IS NULL
  RETURNING id
), forgotten AS (
  DELETE FROM task_engine.idle_claimers s USING task_engine.instances i
  WHERE i.id = s.instance_id AND (i.stopped_at IS NOT NULL OR i.lost_at IS NOT NULL)
), request AS MATERIALIZED (
  SELECT r.task_id, r.attempt, r.instance_id, e.task_id IS NOT NULL AS ended,
    e.ends_task IS NULL AND NOT EXISTS (
      SELECT FROM task_engine.ended_executions later
      WHERE later.task_id = r.task_id AND later.attempt > r.attempt) AND NOT EXISTS (
      SELECT FROM task_engine.cancel_requests later
      WHERE later.task_id = r.task_id AND later.attempt > r.attempt) AS goes_on
  FROM task_engine.cancel_requests r
  LEFT JOIN task_engine.ended_executions e ON e.task_id = r.task_id AND e.attempt = r.attempt
), over AS MATERIALIZED (
  SELECT id FROM task_engine.created_tasks
  WHERE id = ANY (ARRAY(SELECT task_id FROM request WHERE ended AND NOT goes_on))
  ORDER BY id FOR KEY SHARE SKIP LOCKED
), answered AS (
  DELETE FROM task_engine.cancel_requests r
  WHERE EXISTS (SELECT FROM request q WHERE q.task_id = r.task_id AND q.attempt = r.attempt
                AND q.ended AND NOT q.goes_on)
    AND r.task_id = ANY (ARRAY(SELECT id FROM over))
  RETURNING r.task_id, r.attempt, r.requested_at
), kept AS (
  INSERT INTO task_engine.cancellations (task_id, attempt, requested_at)
  SELECT task_id, attempt, requested_at FROM answered ORDER BY task_id, attempt
  ON CONFLICT (task_id, attempt) DO NOTHING
), wanted AS (
  SELECT task_id, attempt FROM request WHERE instance_id = $1 AND NOT ended
), waiting_class AS (
  (SELECT queue, task_class, 1 AS place FROM task_engine.waiting_tasks
   ORDER BY queue, task_class LIMIT 1)
  UNION ALL
  SELECT head.queue, head.task_class, waiting_class.place + 1
  FROM waiting_class CROSS JOIN LATERAL (
    SELECT w.queue, w.task_class FROM task_engine.waiting_tasks w
    WHERE (w.queue, w.task_class) > (waiting_class.queue, waiting_class.task_class)
    ORDER BY w.queue, w.task_class LIMIT 1
  ) AS head
  WHERE waiting_class.place < 100
)
SELECT
  EXISTS (SELECT FROM beat) AS alive,
  EXISTS (SELECT FROM task_engine.suspended_tasks) AS tasks_suspended,
  clock_timestamp() AS now,
  pg_walfile_name(pg_current_wal_insert_lsn()) AS log_file,
  (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS log_bytes,
  ARRAY(SELECT id FROM task_engine.claims WHERE instance_id = $1) AS claims,
  ARRAY(SELECT task_id FROM wanted ORDER BY task_id, attempt) AS cancel_tasks,
  ARRAY(SELECT attempt FROM wanted ORDER BY task_id, attempt) AS cancel_attempts,
  ARRAY(SELECT task_id FROM request WHERE ended AND goes_on) AS lingering,
  ARRAY(SELECT id FROM task_engine.instances
        WHERE stopped_at IS NULL AND lost_at IS NULL AND id <> $1
          AND heartbeat_at + lease < clock_timestamp() ORDER BY id) AS expired,
  ARRAY(SELECT DISTINCT k.instance_id FROM task_engine.claims k
        JOIN task_engine.instances i ON i.id = k.instance_id
        WHERE i.stopped_at IS NOT NULL OR i.lost_at IS NOT NULL) AS orphaned,
  ARRAY(SELECT DISTINCT task_class FROM waiting_class ORDER BY task_class) AS waiting_classes,
  (SELECT (extract(epoch FROM min(s.next_at) - clock_timestamp()) * 1000000)::bigint
   FROM task_engine.schedules s) AS next_schedule_us;

-- name: unregister
-- Only the schemas of live engines count. The row may stay for years, because of its secrets.
WITH awake AS (DELETE FROM task_engine.idle_claimers WHERE instance_id = $1)
UPDATE task_engine.instances SET stopped_at = clock_timestamp(),
  classes = CASE WHEN jsonb_typeof(classes) = 'object' AND classes @? '$.*.schema'
    THEN (SELECT jsonb_object_agg(key,
      CASE jsonb_typeof(value) WHEN 'object' THEN value - 'schema' ELSE value END) FROM jsonb_each(classes))
    ELSE classes END
WHERE id = $1 AND stopped_at IS NULL AND lost_at IS NULL;

-- name: declare_lost
-- The row lock and the check again after it make one of "lost" and "heartbeat"
-- win; the other changes nothing.
WITH lost AS (
  UPDATE task_engine.instances SET lost_at = clock_timestamp(),
    classes = CASE WHEN jsonb_typeof(classes) = 'object' AND classes @? '$.*.schema'
      THEN (SELECT jsonb_object_agg(key,
      CASE jsonb_typeof(value) WHEN 'object' THEN value - 'schema' ELSE value END) FROM jsonb_each(classes))
      ELSE classes END
  WHERE id = $1 AND stopped_at IS NULL AND lost_at IS NULL
    AND ($2 OR heartbeat_at + lease < clock_timestamp())
  RETURNING id
), forgotten AS (
  DELETE FROM task_engine.idle_claimers WHERE instance_id IN (SELECT id FROM lost)
)
SELECT id FROM lost;

-- name: instances
-- Sessions of one name or of all, newest first: those that have not ended, those that
-- still hold something, and the last of each name. Without a name also not those
-- that ended before $2 (microseconds ago), but for the last that declared these
-- secrets: they hold for the tasks that are left.
WITH session AS MATERIALIZED (
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
FROM session
WHERE ended_at IS NULL
  OR held > 0
  OR is_last AND (
    $1::text IS NOT NULL
    OR ended_at >= clock_timestamp() - $2::bigint * interval '1 microsecond'
    OR id IN (SELECT max(id) FROM session
              WHERE is_last AND classes @? '$.*.secret[*]' GROUP BY classes))
ORDER BY id DESC;

-- name: prune_instances
-- Removes up to $2 sessions that ended more than $1 microseconds ago. Not those that
-- hold something, or that history names; not the last that declared these secrets
-- (see the statement above); and the last of a name only after all others of it.
--
-- There is no index from a session to its executions. But a session executes only what
-- was created before it ended, and the oldest tasks come first by the key: so
-- they are enough for the sessions that ended before the youngest of them
-- was created. A day between, because ids and times are in order only roughly.
WITH oldest AS MATERIALIZED (
  SELECT id, created_at FROM task_engine.created_tasks ORDER BY id LIMIT 10000
), session AS MATERIALIZED (
  SELECT id, classes, coalesce(stopped_at, lost_at) AS ended_at,
    id = min(id) OVER (PARTITION BY name) AS is_first,
    id = max(id) OVER (PARTITION BY name) AS is_last
  FROM task_engine.instances
)
DELETE FROM task_engine.instances WHERE id = ANY (ARRAY(
  SELECT id FROM session
  WHERE ended_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
    AND (is_first OR NOT is_last)
    AND NOT (is_last AND id IN (
      SELECT max(id) FROM session WHERE is_last AND classes @? '$.*.secret[*]' GROUP BY classes))
    AND id NOT IN (SELECT instance_id FROM task_engine.claims)
    AND ended_at < (SELECT CASE WHEN count(*) < 10000 THEN 'infinity'
                      ELSE max(created_at) - interval '1 day' END FROM oldest)
    AND id NOT IN (SELECT e.instance_id FROM oldest o
                   JOIN task_engine.ended_executions e ON e.task_id = o.id
                   WHERE e.instance_id IS NOT NULL)
  ORDER BY id LIMIT $2::bigint));

-- name: held_attempts
SELECT h.task_id, h.attempt, h.claimed_at, c.task_class
FROM task_engine.held_attempts h JOIN task_engine.created_tasks c ON c.id = h.task_id
WHERE h.instance_id = $1 ORDER BY h.task_id;
