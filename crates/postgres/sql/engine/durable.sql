-- name: steps
-- Everything that is recorded about the steps of a task, and the time. By primary keys.
SELECT 'step' AS row, s.name, s.number, s.kind, s.attempt, task_engine.readable(s.result) AS json,
  s.until, s.started_at, s.recorded_at, NULL::boolean AS timed_out
FROM task_engine.steps s WHERE s.task_id = $1
UNION ALL
SELECT 'signal', g.name, NULL, NULL, NULL, task_engine.readable(g.payload),
  NULL, NULL, g.sent_at, g.timed_out
FROM task_engine.signals g WHERE g.task_id = $1
UNION ALL
SELECT 'now', '', NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp(), NULL;

-- name: record_steps
-- Records steps, each at most once: the primary key decides. A step is refused if its claim
-- is gone or its attempt has ended. No lock: if recovery ends the attempt at this moment, its
-- code has run in any case, and a later attempt finds this result under the key, or wins the
-- key and this one is refused. In the order of the key, so that two writers never deadlock.
-- $9: microseconds that a sleep or a wait lasts; $10: the time that a sleep ends at.
WITH recorded AS (
  INSERT INTO task_engine.steps
    (task_id, name, number, attempt, kind, result, until, started_at, recorded_at)
  SELECT n.task_id, n.name, n.number, n.attempt, n.kind, n.result,
    coalesce(n.until, clock.now + n.lasts_us * interval '1 microsecond'),
    clock.now - n.took_us * interval '1 microsecond', clock.now
  FROM unnest(
    $1::bigint[], $2::integer[], $3::bigint[], $4::text[], $5::integer[], $6::text[],
    $7::jsonb[], $8::bigint[], $9::bigint[], $10::timestamptz[]
  ) AS n(task_id, attempt, claim_id, name, number, kind, result, took_us, lasts_us, until)
  CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
  WHERE EXISTS (SELECT FROM task_engine.claims k WHERE k.id = n.claim_id)
    AND NOT EXISTS (
      SELECT FROM task_engine.ended_executions e
      WHERE e.task_id = n.task_id AND e.attempt = n.attempt)
  ORDER BY n.task_id, n.name
  ON CONFLICT (task_id, name) DO NOTHING
  RETURNING task_id, name, kind, until, recorded_at
)
SELECT r.task_id, r.name, r.until, r.recorded_at,
  -- A signal that came before its wait.
  g.name IS NOT NULL AS has_signal, task_engine.readable(g.payload) AS payload, g.sent_at, g.timed_out
FROM recorded r
LEFT JOIN task_engine.signals g
  ON r.kind = 'wait' AND g.task_id = r.task_id AND g.name = r.name;

-- name: existing_steps
-- Which of these steps are recorded. By the primary key.
SELECT s.task_id, s.name
FROM unnest($1::bigint[], $2::text[]) AS n(task_id, name)
JOIN task_engine.steps s ON s.task_id = n.task_id AND s.name = n.name;

-- name: record_step_in
-- Records a step in the application's transaction. See the function for the details.
SELECT task_engine.record_step(
  $1::bigint, $2::integer, $3::bigint, $4::text, $5::integer, $6::jsonb,
  $7::bigint * interval '1 microsecond');

-- name: record_step_in_from_text
-- As record_step_in, with the result as text.
SELECT task_engine.record_step(
  $1::bigint, $2::integer, $3::bigint, $4::text, $5::integer, $6::text::jsonb,
  $7::bigint * interval '1 microsecond');

-- name: call_fence
-- Whether an attempt is held and has not ended, and whether it has recorded this step.
SELECT
  EXISTS (SELECT FROM task_engine.claims k WHERE k.id = $3) AND NOT EXISTS (
    SELECT FROM task_engine.ended_executions e WHERE e.task_id = $1 AND e.attempt = $2) AS held,
  EXISTS (SELECT FROM task_engine.steps s WHERE s.task_id = $1 AND s.name = $4) AS recorded;

-- name: record_call
-- The step of children that were created in this transaction. If a step of this name is
-- recorded already, the transaction is rolled back.
INSERT INTO task_engine.steps
  (task_id, name, number, attempt, kind, result, started_at, recorded_at)
SELECT $1, $2, $3, $4, 'call', to_jsonb($5::bigint[]), clock.now, clock.now
FROM (SELECT clock_timestamp() AS now) AS clock
ON CONFLICT (task_id, name) DO NOTHING
RETURNING recorded_at;

-- name: add_dependencies
INSERT INTO task_engine.task_dependencies (task_id, depends_on)
SELECT DISTINCT $1::bigint, child FROM unnest($2::bigint[]) AS child ORDER BY child
-- It has started after a task that it depends on, and calls that now.
ON CONFLICT (task_id, depends_on) DO UPDATE SET condition = NULL;

-- name: lock_tasks_to_suspend
-- Tasks that no other transaction has locked. A transaction that sends a signal locks its
-- task until its end: that task is asked about again later. The statement after this one
-- sees what earlier holders of the lock have written.
SELECT id FROM task_engine.created_tasks WHERE id = ANY ($1)
ORDER BY id FOR NO KEY UPDATE SKIP LOCKED;

-- name: existing_tasks
SELECT id FROM task_engine.created_tasks WHERE id = ANY ($1);

-- name: suspend
-- Ends attempts, each at most once, whose tasks are locked and wait for a signal or for
-- children. A task whose signal has been sent, or whose children have all ended, is due at
-- once. A cancel request for the attempt ends the task, as in record.
-- $11: the signals of each, as an array; $12: the first of the children that it waits for; $13:
-- when it is due if nothing wakes it.
WITH given AS MATERIALIZED (
  SELECT e.*, clock.now, watch.child AS watching,
    EXISTS (
      SELECT FROM task_engine.cancel_requests r
      WHERE r.task_id = e.task_id AND r.attempt = e.attempt) AS to_cancel,
    e.children_from IS NOT NULL AND watch.child IS NULL
    OR EXISTS (
      SELECT FROM task_engine.signals g
      WHERE g.task_id = e.task_id
        AND g.name = ANY (ARRAY(SELECT jsonb_array_elements_text(e.signals)))) AS is_due
  FROM unnest(
    $1::bigint[], $2::integer[], $3::integer[], $4::bigint[], $5::bigint[], $6::integer[],
    $7::bigint[], $8::bigint[], $9::bigint[], $10::jsonb[], $11::jsonb[], $12::bigint[],
    $13::timestamptz[], $14::integer[]
  ) AS e(
    task_id, attempt, retry_number, claim_id, instance_id, worker,
    ended_ago_us, lasted_us, wait_us, error, signals, children_from, until, next_retry_number)
  CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
  LEFT JOIN LATERAL (
    -- has_ended, written out: a call for each of thousands of children would take longer.
    SELECT d.depends_on AS child FROM task_engine.task_dependencies d
    WHERE d.task_id = e.task_id AND d.depends_on >= e.children_from AND d.condition IS NULL
      AND NOT coalesce(
        (SELECT x.ends_task IS NOT NULL FROM task_engine.ended_executions x
         WHERE x.task_id = d.depends_on ORDER BY x.attempt DESC LIMIT 1),
        -- Not EXISTS: its plan may read all tasks into a hash table.
        (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = d.depends_on) IS NULL)
    ORDER BY d.depends_on LIMIT 1
  ) AS watch ON true
), ended AS (
  INSERT INTO task_engine.ended_executions (
    task_id, attempt, retry_number, claim_id, instance_id, worker, started_at, stopped_at,
    retry_at, next_retry_number, ends_task, error)
  SELECT
    e.task_id, e.attempt, e.retry_number, e.claim_id, e.instance_id, e.worker,
    e.now - (e.ended_ago_us + e.lasted_us) * interval '1 microsecond',
    e.now - e.ended_ago_us * interval '1 microsecond',
    CASE WHEN e.to_cancel THEN NULL WHEN e.is_due THEN e.now
      ELSE coalesce(e.until, e.now + e.wait_us * interval '1 microsecond') END,
    CASE WHEN NOT e.to_cancel THEN e.next_retry_number END,
    CASE WHEN e.to_cancel THEN 'cancelled' END::task_engine.task_status,
    e.error
  FROM given e
  ORDER BY e.task_id, e.attempt
  ON CONFLICT (task_id, attempt) DO NOTHING
  RETURNING task_id, attempt, next_retry_number, retry_at
), again AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class)
  SELECT c.id, e.retry_at, c.priority, e.attempt + 1, e.next_retry_number, c.queue, c.task_class
  FROM ended e JOIN task_engine.created_tasks c ON c.id = e.task_id
  WHERE e.retry_at IS NOT NULL
  RETURNING task_id, due_at, task_class, queue, priority
), suspended AS (
  INSERT INTO task_engine.suspended_tasks (task_id, attempt, signals, watching)
  SELECT e.task_id, e.attempt, ARRAY(SELECT jsonb_array_elements_text(g.signals)), g.watching
  FROM ended e JOIN given g ON g.task_id = e.task_id AND g.attempt = e.attempt
  WHERE e.retry_at IS NOT NULL AND NOT g.is_due
  ORDER BY e.task_id
  ON CONFLICT (task_id) DO UPDATE
    SET attempt = EXCLUDED.attempt, signals = EXCLUDED.signals, watching = EXCLUDED.watching,
      blocked_on = NULL, late_parents = NULL
  RETURNING task_id, watching
)
SELECT e.task_id, e.attempt, s.watching,
  (SELECT count(task_engine.wake(again.task_class, again.queue, again.priority)) FROM again
   WHERE again.due_at < clock_timestamp() + interval '15 seconds') AS woken
FROM ended e LEFT JOIN suspended s ON s.task_id = e.task_id;

-- name: watched_by
-- The children that suspended tasks watch. By the primary key.
SELECT s.task_id, s.watching FROM task_engine.suspended_tasks s
WHERE s.task_id = ANY ($1) AND s.watching IS NOT NULL;

-- name: time_out
-- The timeout of a wait, in the place of its signal: the primary key decides. The task is
-- locked. Refused if the attempt has ended.
INSERT INTO task_engine.signals (task_id, name, payload, sent_at, timed_out)
SELECT $1, $4, 'null', clock_timestamp(), true
WHERE EXISTS (SELECT FROM task_engine.claims k WHERE k.id = $3)
  AND NOT EXISTS (
    SELECT FROM task_engine.ended_executions e WHERE e.task_id = $1 AND e.attempt = $2)
ON CONFLICT (task_id, name) DO NOTHING;

-- name: signal_of
SELECT g.name, task_engine.readable(g.payload) AS payload, g.sent_at, g.timed_out
FROM task_engine.signals g WHERE g.task_id = $1 AND g.name = $2;

-- name: lock_suspended
-- The statement after this one sees what earlier holders of the locks have written, also
-- the waiting rows of tasks that were suspended again. A row that another transaction has
-- locked is left to it: it resumes the task, or looks again after its commit. If it is a
-- signal that is rolled back, a heartbeat resumes the task.
SELECT task_id FROM task_engine.suspended_tasks WHERE task_id = ANY ($1)
ORDER BY task_id FOR UPDATE SKIP LOCKED;

-- name: resume
-- Suspended tasks, which are locked: one whose signal has been sent, or whose children have all
-- ended, is due. One whose watched child has ended watches the next that has not. A row of a
-- task that no longer waits for this attempt is removed. The end of a watched child may have
-- been committed meanwhile, by an engine that saw no watch yet, or that left the task to this
-- lock. So the caller asks again about all watched children after its commit: either it sees
-- the end, or the engine that records the end sees the watch, without the lock.
WITH facts AS MATERIALIZED (
  SELECT s.task_id, s.attempt, s.watching, w.task_id IS NOT NULL AS waits,
    EXISTS (SELECT FROM task_engine.signals g
            WHERE g.task_id = s.task_id AND g.name = ANY (s.signals)) AS signalled,
    -- has_ended, written out: a call for each of thousands of children would take longer.
    CASE WHEN s.watching IS NOT NULL THEN (
      SELECT d.depends_on FROM task_engine.task_dependencies d
      WHERE d.task_id = s.task_id AND d.depends_on >= s.watching AND d.condition IS NULL
        AND NOT coalesce(
          (SELECT e.ends_task IS NOT NULL FROM task_engine.ended_executions e
           WHERE e.task_id = d.depends_on ORDER BY e.attempt DESC LIMIT 1),
          -- Not EXISTS: its plan may read all tasks into a hash table.
          (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = d.depends_on) IS NULL)
      ORDER BY d.depends_on LIMIT 1) END AS next
  FROM task_engine.suspended_tasks s
  LEFT JOIN task_engine.waiting_tasks w ON w.task_id = s.task_id AND w.attempt = s.attempt + 1
  WHERE s.task_id = ANY ($1)
), moved AS (
  UPDATE task_engine.suspended_tasks s SET watching = f.next FROM facts f
  WHERE s.task_id = f.task_id AND f.waits AND NOT f.signalled AND f.next <> f.watching
), free AS MATERIALIZED (
  -- A row that an edit or a replacement holds is skipped: a heartbeat resumes its task. Its
  -- new row is not visible here.
  SELECT w.task_id, w.attempt FROM task_engine.waiting_tasks w
  WHERE (w.task_id, w.attempt) IN (
    SELECT f.task_id, f.attempt + 1 FROM facts f
    WHERE f.waits AND (f.signalled OR f.watching IS NOT NULL AND f.next IS NULL))
  ORDER BY w.task_id FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM task_engine.waiting_tasks w
  USING free WHERE w.task_id = free.task_id AND w.attempt = free.attempt
  RETURNING w.task_id, w.attempt, w.retry_number
), freed AS (
  DELETE FROM task_engine.suspended_tasks s
  WHERE s.task_id = ANY (ARRAY(SELECT task_id FROM gone))
    OR s.task_id = ANY (ARRAY(SELECT task_id FROM facts WHERE NOT waits))
), again AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class)
  SELECT c.id, clock_timestamp(), c.priority, g.attempt, g.retry_number, c.queue, c.task_class
  FROM gone g JOIN task_engine.created_tasks c ON c.id = g.task_id
  RETURNING task_class, queue, priority
)
SELECT ARRAY(SELECT DISTINCT next FROM facts
             WHERE waits AND NOT signalled AND next IS NOT NULL) AS watching,
  (SELECT count(*) FROM again) AS resumed,
  (SELECT count(task_engine.wake(again.task_class, again.queue, again.priority)) FROM again) AS woken;

-- name: suspended_page
-- Suspended tasks in the order of their ids, and whether each should be resumed, watch another
-- task, be cancelled, or be removed. A blocked task is cancelled at once by an end without
-- success of a task that it depends on, whichever one it looks at.
SELECT s.task_id, s.blocked_on IS NOT NULL AS is_blocked,
  s.watching IS NOT NULL AND task_engine.has_ended(s.watching)
  OR s.blocked_on IS NOT NULL AND (
    task_engine.dependency_end(s.blocked_on) <> 'open'
    OR (
      SELECT d.depends_on FROM task_engine.task_dependencies d
      WHERE d.task_id = s.task_id AND d.depends_on > s.blocked_on AND d.condition = 'success'
        AND (SELECT e.ends_task IN ('failed', 'cancelled') FROM task_engine.ended_executions e
             WHERE e.task_id = d.depends_on ORDER BY e.attempt DESC LIMIT 1)
        AND task_engine.dependency_end(d.depends_on) <> 'open'
      LIMIT 1) IS NOT NULL)
  OR EXISTS (SELECT FROM task_engine.signals g
             WHERE g.task_id = s.task_id AND g.name = ANY (s.signals))
  -- Not EXISTS: PostgreSQL 13 may read the whole queue for that.
  OR (SELECT w.task_id FROM task_engine.waiting_tasks w
      WHERE w.task_id = s.task_id AND w.attempt = s.attempt + 1) IS NULL AS is_missed
FROM task_engine.suspended_tasks s WHERE s.task_id > $1
ORDER BY s.task_id LIMIT $2;

-- name: late_tasks
-- Blocked tasks that depend on tasks whose engines do not know it, if one of these has ended
-- and it matters: it is looked at, or has not succeeded. By the index suspended_tasks_late.
SELECT s.task_id FROM task_engine.suspended_tasks s
WHERE s.late_parents IS NOT NULL AND (
  SELECT p.id FROM unnest(s.late_parents) AS p(id)
  WHERE task_engine.dependency_end(p.id) NOT IN ('open', 'stopped')
    OR p.id = s.blocked_on AND task_engine.dependency_end(p.id) <> 'open'
  LIMIT 1) IS NOT NULL
ORDER BY s.task_id LIMIT $1;

-- name: child_outcomes
-- The end of each of these tasks ($1) by an attempt ($2), or its newest one. By primary keys.
-- The task itself is read only if it has not ended: most have.
SELECT a.id,
  -- Not EXISTS, which the server may answer by reading all tasks once.
  e.ends_task IS NOT NULL
    OR (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = a.id) IS NOT NULL AS exists,
  e.attempt, e.ends_task::text AS status,
  task_engine.readable(e.result) AS result, task_engine.readable(e.error) AS error
FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY AS a(id, attempt, place)
LEFT JOIN LATERAL (
  SELECT x.attempt, x.ends_task, x.result, x.error FROM task_engine.ended_executions x
  WHERE x.task_id = a.id AND (a.attempt IS NULL OR x.attempt = a.attempt)
  ORDER BY x.attempt DESC LIMIT 1
) AS e ON true
ORDER BY a.place;

-- name: signal
SELECT $1::bigint AS task_id, task_engine.signal($1::bigint, $2::text, $3::jsonb) AS status;

-- name: signal_from_text
SELECT $1::bigint AS task_id, task_engine.signal($1::bigint, $2::text, $3::text::jsonb) AS status;

-- name: signal_unique
SELECT s.task_id, s.status
FROM task_engine.signal_unique($1::text, $2::text, $3::text, $4::jsonb) AS s;

-- name: signal_unique_from_text
SELECT s.task_id, s.status
FROM task_engine.signal_unique($1::text, $2::text, $3::text, $4::text::jsonb) AS s;

-- name: lock_source
-- The task whose steps are copied, and what it depends on: retention leaves them until the end
-- of the transaction.
SELECT c.id FROM task_engine.created_tasks c
WHERE c.id = ANY (ARRAY(
  SELECT $1::bigint UNION ALL
  SELECT d.depends_on FROM task_engine.task_dependencies d
  WHERE d.task_id = $1 AND d.condition IS NOT NULL))
ORDER BY c.id FOR KEY SHARE;

-- name: copy_dependencies
-- What a task ($2) depends on, for a task that was created in this transaction ($1). Not what
-- was removed.
INSERT INTO task_engine.task_dependencies (task_id, depends_on, condition)
SELECT $1, d.depends_on, d.condition FROM task_engine.task_dependencies d
WHERE d.task_id = $2 AND d.depends_on = ANY ($3) AND d.condition IS NOT NULL
ORDER BY d.depends_on
ON CONFLICT DO NOTHING;

-- name: copy_steps
-- The steps of a task ($2) below a number ($3) for a task that was created in this transaction
-- ($1), with the signals that its waits received and the children of its calls.
WITH kept AS (
  SELECT s.* FROM task_engine.steps s WHERE s.task_id = $2 AND s.number < $3
), copied AS (
  INSERT INTO task_engine.steps
    (task_id, name, number, attempt, kind, result, until, started_at, recorded_at)
  SELECT $1, k.name, k.number, 0, k.kind, k.result, k.until, k.started_at, k.recorded_at FROM kept k
), received AS (
  INSERT INTO task_engine.signals (task_id, name, payload, sent_at, timed_out)
  SELECT $1, g.name, g.payload, g.sent_at, g.timed_out
  FROM kept k JOIN task_engine.signals g ON g.task_id = $2 AND g.name = k.name
  WHERE k.kind = 'wait'
)
INSERT INTO task_engine.task_dependencies (task_id, depends_on)
SELECT DISTINCT $1, child::bigint
FROM kept k CROSS JOIN LATERAL jsonb_array_elements_text(k.result) AS child
-- The end of a call has the numbers of attempts.
WHERE k.kind = 'call' AND k.name NOT LIKE '%#ended';
