-- Renews a lease and tells the engine, in one round trip, what it should know.
-- A wish to cancel is answered once its attempt has ended the task. If the
-- attempt ended before its holder heard of the wish, and the task goes on, the
-- wish lingers: it was for the task. A wish that is over is kept where it is in
-- nobody's way; what its attempt answered is there already, or it did not. Its
-- task is locked against retention, and left for the next beat if it cannot be.
WITH RECURSIVE beat AS (
  UPDATE task_engine.instances SET heartbeat_at = clock_timestamp()
  WHERE id = $1 AND stopped_at IS NULL AND lost_at IS NULL
  RETURNING id
), forgotten AS (
  DELETE FROM task_engine.sleepers s USING task_engine.instances i
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
   FROM task_engine.schedules s) AS next_schedule_us
