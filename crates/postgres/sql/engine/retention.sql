-- name: prune_candidates
-- Tasks that may be removed, the oldest first, by the primary key.
SELECT e.task_id FROM task_engine.ended_executions e
WHERE e.ends_task = $1::text::task_engine.task_status
  AND e.stopped_at <= clock_timestamp() - $2::bigint * interval '1 microsecond'
  AND NOT EXISTS (
    SELECT FROM task_engine.ended_executions later
    WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
  AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
  AND e.task_id NOT IN (SELECT unnest(k.task_ids) FROM task_engine.claims k)
  -- A parent reads the results of its children whenever it runs: also if an operator retries
  -- it. Only one that has succeeded never runs again.
  AND NOT EXISTS (
    SELECT FROM task_engine.task_dependencies d
    JOIN task_engine.created_tasks parent ON parent.id = d.task_id
    WHERE d.depends_on = e.task_id AND (
      SELECT p.ends_task FROM task_engine.ended_executions p
      WHERE p.task_id = d.task_id ORDER BY p.attempt DESC LIMIT 1) IS DISTINCT FROM 'stopped')
ORDER BY e.task_id, e.attempt LIMIT $3;

-- name: lock_keys
-- Of tasks that may be removed, those that have no unique key or whose key could
-- be locked. Keys before tasks, as those do who create; and not waiting for
-- them: a key that another transaction is about to use is left for later.
WITH keyed AS MATERIALIZED (
  SELECT c.id, c.task_class, c.context ->> 'unique_key' AS unique_key
  FROM task_engine.created_tasks c
  WHERE c.id = ANY ($1) AND c.context ? 'unique_key'
), held AS MATERIALIZED (
  SELECT k.id FROM keyed k
  JOIN task_engine.unique_tasks u
    ON u.task_class = k.task_class AND u.unique_key = k.unique_key AND u.task_id = k.id
), locked AS MATERIALIZED (
  SELECT k.id FROM keyed k
  JOIN task_engine.unique_tasks u
    ON u.task_class = k.task_class AND u.unique_key = k.unique_key AND u.task_id = k.id
  FOR UPDATE OF u SKIP LOCKED
)
SELECT a.id FROM unnest($1::bigint[]) AS a(id)
WHERE a.id NOT IN (SELECT id FROM held) OR a.id IN (SELECT id FROM locked);

-- name: lock_tasks
-- Not waiting for others: a task that another transaction holds is left for later.
SELECT id FROM task_engine.created_tasks WHERE id = ANY ($1) ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: prune
-- Removes those of the locked tasks that still are where they were. Not those
-- that an open claim names, even if they have ended: their endings are what
-- says that they are no longer held.
WITH gone AS (
  DELETE FROM task_engine.created_tasks c
  WHERE c.id = ANY ($1)
    AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = c.id)
    AND c.id NOT IN (SELECT unnest(k.task_ids) FROM task_engine.claims k)
    AND (SELECT e.ends_task FROM task_engine.ended_executions e
         WHERE e.task_id = c.id ORDER BY e.attempt DESC LIMIT 1)::text = ANY ($2)
  RETURNING c.id, c.task_class, c.context ->> 'unique_key' AS unique_key
), keys AS (
  DELETE FROM task_engine.unique_tasks u USING gone g
  WHERE u.task_class = g.task_class AND u.unique_key = g.unique_key AND u.task_id = g.id
), executions AS (
  DELETE FROM task_engine.ended_executions WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), late AS (
  DELETE FROM task_engine.late_results WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), slots AS (
  DELETE FROM task_engine.fired_slots WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), requests AS (
  DELETE FROM task_engine.cancel_requests WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), cancellations AS (
  DELETE FROM task_engine.cancellations WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), progress AS (
  DELETE FROM task_engine.execution_progress WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), logs AS (
  DELETE FROM task_engine.execution_logs WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), steps AS (
  DELETE FROM task_engine.steps WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), signals AS (
  DELETE FROM task_engine.signals WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), dependencies AS (
  DELETE FROM task_engine.task_dependencies WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), reopened AS (
  DELETE FROM task_engine.reopened_tasks WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
), suspended AS (
  DELETE FROM task_engine.suspended_tasks WHERE task_id = ANY (ARRAY(SELECT id FROM gone))
)
SELECT id FROM gone;
