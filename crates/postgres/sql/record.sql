-- Ends attempts, each at most once; whoever inserts first decides: the primary
-- key says so. As it stands this fails if any of them has ended; then it is run
-- again with the clause in the comment, which makes the insert look before each
-- row and confirm it after, and so costs more than the rare failure. In the order
-- of the key, so that two writers of the same attempts wait for each other and
-- never deadlock. What goes on waits again in the same statement. Finished
-- claims ($14) are skipped if somebody has them locked: a later sweep removes
-- them, and this statement never waits for recovery while recovery waits for it.
WITH ended AS (
  INSERT INTO task_engine.ended_executions (
    task_id, attempt, retry_number, claim_id, instance_id, worker, started_at, stopped_at,
    retry_at, next_retry_number, ends_task, result, error)
  SELECT
    e.task_id, e.attempt, e.retry_number, e.claim_id, e.instance_id, e.worker,
    clock.now - (e.ended_ago_us + e.lasted_us) * interval '1 microsecond',
    clock.now - e.ended_ago_us * interval '1 microsecond',
    CASE WHEN NOT wish.to_cancel THEN clock.now + e.wait_us * interval '1 microsecond' END,
    CASE WHEN NOT wish.to_cancel THEN e.next_retry_number END,
    CASE WHEN wish.to_cancel THEN 'cancelled' ELSE e.ends_task END::task_engine.task_status,
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
  ) AS wish
  ORDER BY e.task_id, e.attempt
  /* ON CONFLICT (task_id, attempt) DO NOTHING */
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
FROM ended e
