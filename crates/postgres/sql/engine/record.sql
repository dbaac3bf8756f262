-- name: record
-- Ends attempts, each at most once: the first insert decides, by the primary key.
-- This fails if any of them has ended; then record_skipping_ended runs instead. In
-- the order of the key, so that two writers of the same attempts wait for each
-- other and never deadlock. Tasks that continue wait again in the same statement.
-- Finished claims ($14) are skipped if they are locked: the engine reclaims them at a
-- heartbeat, and this statement never waits for recovery while recovery waits for it.
WITH ended AS (
  INSERT INTO task_engine.ended_executions (
    task_id, attempt, retry_number, claim_id, instance_id, worker, started_at, stopped_at,
    retry_at, next_retry_number, ends_task, result, error)
  SELECT
    e.task_id, e.attempt, e.retry_number, e.claim_id, e.instance_id, e.worker,
    clock.now - (e.ended_ago_us + e.lasted_us) * interval '1 microsecond',
    clock.now - e.ended_ago_us * interval '1 microsecond',
    CASE WHEN NOT request.to_cancel THEN clock.now + e.wait_us * interval '1 microsecond' END,
    CASE WHEN NOT request.to_cancel THEN e.next_retry_number END,
    CASE WHEN request.to_cancel THEN 'cancelled' ELSE e.ends_task END::task_engine.task_status,
    e.result, e.error
  FROM unnest(
    $1::bigint[], $2::integer[], $3::integer[], $4::bigint[], $5::bigint[], $6::integer[],
    $7::bigint[], $8::bigint[], $9::bigint[], $10::integer[], $11::text[], $12::jsonb[], $13::jsonb[]
  ) AS e(
    task_id, attempt, retry_number, claim_id, instance_id, worker,
    ended_ago_us, lasted_us, wait_us, next_retry_number, ends_task, result, error)
  CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
  -- A task that would wait is cancelled if a cancel request for the attempt is
  -- stored: NextState::with_cancel_request states the rule.
  CROSS JOIN LATERAL (
    SELECT e.wait_us IS NOT NULL AND EXISTS (
      SELECT FROM task_engine.cancel_requests r
      WHERE r.task_id = e.task_id AND r.attempt = e.attempt) AS to_cancel
  ) AS request
  ORDER BY e.task_id, e.attempt
  RETURNING task_id, attempt, retry_at, next_retry_number
), again AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class)
  SELECT c.id, e.retry_at, c.priority, e.attempt + 1, e.next_retry_number, c.queue, c.task_class
  FROM ended e JOIN task_engine.created_tasks c ON c.id = e.task_id
  WHERE e.retry_at IS NOT NULL
  RETURNING due_at, task_class, queue, priority
), closed AS (
  DELETE FROM task_engine.claims
  WHERE id = ANY (ARRAY(
    SELECT id FROM task_engine.claims WHERE id = ANY ($14::bigint[]) FOR UPDATE SKIP LOCKED))
)
SELECT
  e.task_id, e.attempt,
  (SELECT count(task_engine.wake(again.task_class, again.queue, again.priority)) FROM again
   WHERE again.due_at < clock_timestamp() + interval '15 seconds') AS woken
FROM ended e;

-- name: record_skipping_ended
-- As record, but skips attempts that have ended. The insert checks before each row
-- and confirms it after, which costs more than the rare failure of record.
WITH ended AS (
  INSERT INTO task_engine.ended_executions (
    task_id, attempt, retry_number, claim_id, instance_id, worker, started_at, stopped_at,
    retry_at, next_retry_number, ends_task, result, error)
  SELECT
    e.task_id, e.attempt, e.retry_number, e.claim_id, e.instance_id, e.worker,
    clock.now - (e.ended_ago_us + e.lasted_us) * interval '1 microsecond',
    clock.now - e.ended_ago_us * interval '1 microsecond',
    CASE WHEN NOT request.to_cancel THEN clock.now + e.wait_us * interval '1 microsecond' END,
    CASE WHEN NOT request.to_cancel THEN e.next_retry_number END,
    CASE WHEN request.to_cancel THEN 'cancelled' ELSE e.ends_task END::task_engine.task_status,
    e.result, e.error
  FROM unnest(
    $1::bigint[], $2::integer[], $3::integer[], $4::bigint[], $5::bigint[], $6::integer[],
    $7::bigint[], $8::bigint[], $9::bigint[], $10::integer[], $11::text[], $12::jsonb[], $13::jsonb[]
  ) AS e(
    task_id, attempt, retry_number, claim_id, instance_id, worker,
    ended_ago_us, lasted_us, wait_us, next_retry_number, ends_task, result, error)
  CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
  -- A task that would wait is cancelled if a cancel request for the attempt is
  -- stored: NextState::with_cancel_request states the rule.
  CROSS JOIN LATERAL (
    SELECT e.wait_us IS NOT NULL AND EXISTS (
      SELECT FROM task_engine.cancel_requests r
      WHERE r.task_id = e.task_id AND r.attempt = e.attempt) AS to_cancel
  ) AS request
  ORDER BY e.task_id, e.attempt
  ON CONFLICT (task_id, attempt) DO NOTHING
  RETURNING task_id, attempt, retry_at, next_retry_number
), again AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class)
  SELECT c.id, e.retry_at, c.priority, e.attempt + 1, e.next_retry_number, c.queue, c.task_class
  FROM ended e JOIN task_engine.created_tasks c ON c.id = e.task_id
  WHERE e.retry_at IS NOT NULL
  RETURNING due_at, task_class, queue, priority
), closed AS (
  DELETE FROM task_engine.claims
  WHERE id = ANY (ARRAY(
    SELECT id FROM task_engine.claims WHERE id = ANY ($14::bigint[]) FOR UPDATE SKIP LOCKED))
)
SELECT
  e.task_id, e.attempt,
  (SELECT count(task_engine.wake(again.task_class, again.queue, again.priority)) FROM again
   WHERE again.due_at < clock_timestamp() + interval '15 seconds') AS woken
FROM ended e;

-- name: record_late
-- For records of attempts that had already ended. A batch that is sent again after a lost
-- reply finds its own rows (same claim, same end); it is not late. Neither is a record
-- after a success, because only the holder itself completes its task, in a transaction of
-- the application. The rest is kept as evidence.
WITH late AS (
  SELECT l.task_id, l.attempt, l.result, l.error
  FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::jsonb[], $5::jsonb[])
    AS l(task_id, attempt, claim_id, result, error)
  JOIN task_engine.ended_executions e ON e.task_id = l.task_id AND e.attempt = l.attempt
  WHERE e.claim_id IS DISTINCT FROM l.claim_id
    OR (e.error IS NOT NULL AND e.error IS DISTINCT FROM l.error)
), kept AS (
  INSERT INTO task_engine.late_results (task_id, attempt, arrived_at, result, error)
  SELECT task_id, attempt, clock_timestamp(), result, error FROM late
  ORDER BY task_id, attempt
  ON CONFLICT (task_id, attempt) DO NOTHING
)
SELECT task_id, attempt FROM late;

-- name: record_cancel_responses
-- Cancel responses of attempts: in the transaction that ends
-- them, so that a request and its response are recorded together. The request is
-- there until the end of its attempt can be seen.
INSERT INTO task_engine.cancellations (task_id, attempt, requested_at, delivered_at, answer)
SELECT t.task_id, t.attempt, coalesce(r.requested_at, response.at), response.at, t.answer
FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::text[])
  AS t(task_id, attempt, ago_us, answer)
CROSS JOIN LATERAL (
  SELECT clock_timestamp() - t.ago_us * interval '1 microsecond' AS at
) AS response
LEFT JOIN task_engine.cancel_requests r ON r.task_id = t.task_id AND r.attempt = t.attempt
ORDER BY t.task_id, t.attempt
ON CONFLICT (task_id, attempt) DO NOTHING;
