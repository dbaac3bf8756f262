-- name: cancel_waiting
-- Cancels waiting tasks: they end without a started attempt. Rows are locked in order, so
-- that two sessions that cancel the same tasks cannot deadlock.
WITH gone AS (
  DELETE FROM task_engine.waiting_tasks WHERE task_id = ANY (ARRAY(
    SELECT task_id FROM task_engine.waiting_tasks WHERE task_id = ANY ($1)
    ORDER BY task_id FOR UPDATE))
  RETURNING task_id, attempt, retry_number
)
INSERT INTO task_engine.ended_executions
  (task_id, attempt, retry_number, stopped_at, ends_task, error)
SELECT task_id, attempt, retry_number, clock_timestamp(), 'cancelled', $2 FROM gone
ORDER BY task_id
RETURNING task_id;

-- name: cancel_held
-- Requests that engines cancel running attempts, and wakes them if the request is new: a
-- request that is repeated at every heartbeat must not wake all engines each time.
WITH wanted AS (
  INSERT INTO task_engine.cancel_requests (task_id, attempt, instance_id, requested_at)
  SELECT h.task_id, h.attempt, h.instance_id, clock_timestamp()
  FROM task_engine.held_attempts h WHERE h.task_id = ANY ($1)
  ORDER BY h.task_id
  -- A repeated request is the same; its row is returned as well.
  ON CONFLICT (task_id, attempt) DO UPDATE SET instance_id = EXCLUDED.instance_id
  RETURNING task_id, xmax = 0 AS is_new
)
SELECT task_id, CASE WHEN is_new THEN pg_notify('task-engine-cancel', '') IS NOT NULL END
FROM wanted;

-- name: ended_status
-- The end of tasks that are neither waiting nor held; no status for those that
-- have moved on meanwhile, no row for those that do not exist.
SELECT c.id, CASE
  WHEN NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = c.id)
   AND NOT EXISTS (SELECT FROM task_engine.held_attempts h WHERE h.task_id = c.id)
  THEN (SELECT e.ends_task::text FROM task_engine.ended_executions e
        WHERE e.task_id = c.id ORDER BY e.attempt DESC LIMIT 1)
  END AS ended
FROM task_engine.created_tasks c WHERE c.id = ANY ($1);

-- name: lock_tasks
-- Retries and removals lock tasks first, and look
-- in a second statement: in one, the look could be older than the lock.
SELECT id FROM task_engine.created_tasks WHERE id = ANY ($1) ORDER BY id FOR UPDATE;

-- name: restore_dependents
-- Before the retry: what was cancelled because of these tasks waits for them again. See the
-- function.
SELECT r.restored, r.dependents FROM task_engine.restore_dependents($1::bigint[]) AS r;

-- name: needed
-- Those of these tasks ($1) that others depend on that have not succeeded, unless these have
-- ended and are removed, too ($2). By the index task_dependencies_by_child, and keys.
SELECT p.id FROM unnest($1::bigint[]) AS p(id)
WHERE (
  SELECT d.task_id FROM task_engine.task_dependencies d
  WHERE d.depends_on = p.id AND d.condition IS NOT NULL
    AND (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = d.task_id) IS NOT NULL
    AND (
      SELECT e.ends_task FROM task_engine.ended_executions e
      WHERE e.task_id = d.task_id ORDER BY e.attempt DESC LIMIT 1) IS DISTINCT FROM 'stopped'
    AND NOT (d.task_id = ANY ($2::bigint[]) AND (
      SELECT t.status IN ('failed', 'cancelled') FROM task_engine.tasks t WHERE t.id = d.task_id))
  LIMIT 1) IS NOT NULL;

-- name: retry
-- Sends ended tasks back to wait and brings waiting ones forward, except blocked ones. A task
-- that was cancelled before its time waits for it again. The tasks are locked. A waiting row is
-- replaced, never updated.
WITH asked AS MATERIALIZED (
  SELECT t.id, t.status::text, t.is_blocked,
    t.scheduled_at > clock_timestamp() AND NOT t.is_blocked AS later
  FROM task_engine.tasks t WHERE t.id = ANY ($1)
), gone AS (
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.task_id = ANY (ARRAY(SELECT id FROM asked WHERE status = 'waiting' AND later))
  RETURNING w.task_id, w.priority, w.attempt, w.retry_number, w.queue, w.task_class
), again AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class)
  SELECT task_id, clock_timestamp(), priority, attempt, retry_number, ltrim(queue, chr(31)),
    task_class
  FROM gone
  UNION ALL
  SELECT c.id,
    CASE WHEN e.was_held THEN clock_timestamp() ELSE greatest(clock_timestamp(), c.scheduled_at) END,
    c.priority, e.attempt + 1, 0, c.queue, c.task_class
  FROM asked a
  JOIN task_engine.created_tasks c ON c.id = a.id
  CROSS JOIN LATERAL (
    SELECT max(e.attempt) AS attempt, bool_or(e.instance_id IS NOT NULL) AS was_held
    FROM task_engine.ended_executions e WHERE e.task_id = a.id
  ) AS e
  WHERE a.status IN ('failed', 'cancelled')
  RETURNING task_id, task_class, queue, priority
)
SELECT a.id, a.status, a.is_blocked, a.later, again.task_id IS NOT NULL AS again,
  CASE WHEN again.task_id IS NOT NULL
    THEN task_engine.wake(again.task_class, again.queue, again.priority) END AS woken
FROM asked a LEFT JOIN again ON again.task_id = a.id;

-- name: edit
-- Changes a task that waits; its row in created_tasks is locked. A waiting row is
-- replaced, never updated: a claim with an older snapshot must find it gone. If a
-- claim came first, it is gone for this statement, too, and nothing happens.
-- $2 parameters, $3 time, $4 wait in microseconds, $5 priority, $6 queue: what is
-- null stays.
WITH gone AS (
  DELETE FROM task_engine.waiting_tasks w WHERE w.task_id = $1
  RETURNING w.task_id, w.due_at, w.attempt, w.retry_number,
    -- A blocked task stays so.
    CASE WHEN starts_with(w.queue, chr(30)) THEN chr(30) ELSE '' END AS prefix
), changed AS (
  UPDATE task_engine.created_tasks c SET
    task_parameters = coalesce($2::jsonb, c.task_parameters),
    priority = coalesce($5::integer, c.priority),
    queue = coalesce($6::text, c.queue),
    scheduled_at = coalesce(
      $3::timestamptz, clock_timestamp() + $4::bigint * interval '1 microsecond', c.scheduled_at)
  FROM gone g WHERE c.id = g.task_id
  RETURNING c.id, c.priority, c.queue, c.task_class, c.scheduled_at, g.due_at, g.attempt, g.retry_number,
    g.prefix
), again AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class)
  SELECT c.id,
    CASE WHEN $3::timestamptz IS NULL AND $4::bigint IS NULL THEN c.due_at ELSE c.scheduled_at END,
    c.priority, c.attempt, c.retry_number, c.prefix || c.queue, c.task_class
  FROM changed c
  RETURNING task_class, queue, priority, due_at
)
SELECT CASE WHEN due_at < clock_timestamp() + interval '15 seconds'
  THEN task_engine.wake(task_class, queue, priority) END
FROM again;

-- name: status
SELECT t.id, t.status::text FROM task_engine.tasks t WHERE t.id = ANY ($1);
