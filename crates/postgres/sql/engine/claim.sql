-- name: claim_lane
-- Takes due tasks of one priority from a lane, and holds them under claim $1 of
-- instance $2.
--
-- Rows are never updated, so a row's address (ctid) stays valid for as long as
-- this statement's snapshot sees the row. ARRAY(...) instead of joins: the planner
-- does not know the LIMIT, and would scan.
--
-- Rows are locked where they are read, and rows that others have locked are
-- skipped, however many. Tasks with limits are claimed by the statements in limits.sql, and
-- left out here, also if this engine does not know of the limit yet. The position ($6, $7) keeps dead rows that vacuum cannot
-- remove yet from being read again and again. Index: waiting_tasks_by_lane.
WITH alive AS MATERIALIZED (
  SELECT FROM task_engine.instances
  WHERE id = $2 AND stopped_at IS NULL AND lost_at IS NULL
), picked AS MATERIALIZED (
  SELECT w.ctid AS place FROM task_engine.waiting_tasks w
  WHERE w.queue = $4::text AND w.task_class = $5::text AND w.priority = $8::integer
    AND w.due_at <= now() AND (w.due_at, w.task_id) >= ($6::timestamptz, $7::bigint)
    AND EXISTS (SELECT FROM alive)
    AND NOT EXISTS (SELECT FROM task_engine.paused_queues p WHERE p.queue = $4::text)
    AND NOT EXISTS (
      SELECT FROM task_engine.limited_targets t
      WHERE t.in_use
        AND (t.task_class = $5::text AND t.queue = '' OR t.task_class = '' AND t.queue = $4::text))
  ORDER BY w.due_at, w.task_id LIMIT $3::bigint
  FOR UPDATE SKIP LOCKED
), taken AS (
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM picked))
  RETURNING w.task_id, w.due_at, w.attempt, w.retry_number, w.queue, w.task_class
), held AS (
  INSERT INTO task_engine.claims (id, instance_id, claimed_at, task_ids, attempts, retry_numbers)
  SELECT $1, $2, clock_timestamp(), array_agg(t.task_id ORDER BY t.task_id),
    array_agg(t.attempt ORDER BY t.task_id), array_agg(t.retry_number ORDER BY t.task_id)
  FROM taken t
  HAVING count(*) > 0
)
SELECT
  EXISTS (SELECT FROM alive) AS alive,
  t.task_id, t.attempt, t.retry_number, t.task_class, t.queue, t.due_at,
  c.task_parameters, c.context
FROM (VALUES (1)) AS always(one)
LEFT JOIN taken t ON true
LEFT JOIN task_engine.created_tasks c ON c.id = t.task_id
ORDER BY t.due_at, t.task_id;

-- name: claim_lanes
-- As claim_lane, from several lanes of one priority, merged in the order of time
-- and id. Candidates are read without locks, more ($9) than wanted, so that two
-- claimers at the same position both find some; then the first ones without a lock
-- are taken.
WITH alive AS MATERIALIZED (
  SELECT FROM task_engine.instances
  WHERE id = $2 AND stopped_at IS NULL AND lost_at IS NULL
), candidates AS MATERIALIZED (
  SELECT w.place, w.due_at, w.task_id
  FROM unnest($4::text[], $5::text[], $6::timestamptz[], $7::bigint[])
    AS lane(queue, task_class, from_due_at, from_id)
  CROSS JOIN LATERAL (
    SELECT w.ctid AS place, w.due_at, w.task_id
    FROM task_engine.waiting_tasks w
    WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority = $8::integer
      AND w.due_at <= now() AND (w.due_at, w.task_id) >= (lane.from_due_at, lane.from_id)
    ORDER BY w.due_at, w.task_id LIMIT $9::bigint
  ) AS w
  WHERE EXISTS (SELECT FROM alive)
    AND lane.queue <> ALL (ARRAY(SELECT p.queue FROM task_engine.paused_queues p))
    AND lane.task_class <> ALL (ARRAY(
      SELECT t.task_class FROM task_engine.limited_targets t WHERE t.in_use AND t.queue = ''))
    AND lane.queue <> ALL (ARRAY(
      SELECT t.queue FROM task_engine.limited_targets t WHERE t.in_use AND t.task_class = ''))
  ORDER BY w.due_at, w.task_id LIMIT $9::bigint
), picked AS MATERIALIZED (
  SELECT w.ctid AS place FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM candidates))
  ORDER BY w.due_at, w.task_id LIMIT $3::bigint
  FOR UPDATE SKIP LOCKED
), taken AS (
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM picked))
  RETURNING w.task_id, w.due_at, w.attempt, w.retry_number, w.queue, w.task_class
), held AS (
  INSERT INTO task_engine.claims (id, instance_id, claimed_at, task_ids, attempts, retry_numbers)
  SELECT $1, $2, clock_timestamp(), array_agg(t.task_id ORDER BY t.task_id),
    array_agg(t.attempt ORDER BY t.task_id), array_agg(t.retry_number ORDER BY t.task_id)
  FROM taken t
  HAVING count(*) > 0
)
SELECT
  EXISTS (SELECT FROM alive) AS alive,
  t.task_id, t.attempt, t.retry_number, t.task_class, t.queue, t.due_at,
  c.task_parameters, c.context
FROM (VALUES (1)) AS always(one)
LEFT JOIN taken t ON true
LEFT JOIN task_engine.created_tasks c ON c.id = t.task_id
ORDER BY t.due_at, t.task_id;

-- name: claim_lane_checked
-- As claim_lane, after a claim that failed because of a row: a value that cannot be read
-- is replaced, and the last column says why.
WITH alive AS MATERIALIZED (
  SELECT FROM task_engine.instances
  WHERE id = $2 AND stopped_at IS NULL AND lost_at IS NULL
), picked AS MATERIALIZED (
  SELECT w.ctid AS place FROM task_engine.waiting_tasks w
  WHERE w.queue = $4::text AND w.task_class = $5::text AND w.priority = $8::integer
    AND w.due_at <= now() AND (w.due_at, w.task_id) >= ($6::timestamptz, $7::bigint)
    AND EXISTS (SELECT FROM alive)
    AND NOT EXISTS (SELECT FROM task_engine.paused_queues p WHERE p.queue = $4::text)
    AND NOT EXISTS (
      SELECT FROM task_engine.limited_targets t
      WHERE t.in_use
        AND (t.task_class = $5::text AND t.queue = '' OR t.task_class = '' AND t.queue = $4::text))
  ORDER BY w.due_at, w.task_id LIMIT $3::bigint
  FOR UPDATE SKIP LOCKED
), taken AS (
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM picked))
  RETURNING w.task_id, w.due_at, w.attempt, w.retry_number, w.queue, w.task_class
), held AS (
  INSERT INTO task_engine.claims (id, instance_id, claimed_at, task_ids, attempts, retry_numbers)
  SELECT $1, $2, clock_timestamp(), array_agg(t.task_id ORDER BY t.task_id),
    array_agg(t.attempt ORDER BY t.task_id), array_agg(t.retry_number ORDER BY t.task_id)
  FROM taken t
  HAVING count(*) > 0
)
SELECT
  EXISTS (SELECT FROM alive) AS alive,
  t.task_id, t.attempt, t.retry_number, t.task_class, t.queue, t.due_at,
  task_engine.readable(c.task_parameters), task_engine.readable(c.context),
  coalesce(
    'its parameters cannot be read: ' || task_engine.unreadable(c.task_parameters),
    'its context cannot be read: ' || task_engine.unreadable(c.context))
FROM (VALUES (1)) AS always(one)
LEFT JOIN taken t ON true
LEFT JOIN task_engine.created_tasks c ON c.id = t.task_id
ORDER BY t.due_at, t.task_id;

-- name: claim_lanes_checked
-- As claim_lanes, after a claim that failed because of a row: a value that cannot be read
-- is replaced, and the last column says why.
WITH alive AS MATERIALIZED (
  SELECT FROM task_engine.instances
  WHERE id = $2 AND stopped_at IS NULL AND lost_at IS NULL
), candidates AS MATERIALIZED (
  SELECT w.place, w.due_at, w.task_id
  FROM unnest($4::text[], $5::text[], $6::timestamptz[], $7::bigint[])
    AS lane(queue, task_class, from_due_at, from_id)
  CROSS JOIN LATERAL (
    SELECT w.ctid AS place, w.due_at, w.task_id
    FROM task_engine.waiting_tasks w
    WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority = $8::integer
      AND w.due_at <= now() AND (w.due_at, w.task_id) >= (lane.from_due_at, lane.from_id)
    ORDER BY w.due_at, w.task_id LIMIT $9::bigint
  ) AS w
  WHERE EXISTS (SELECT FROM alive)
    AND lane.queue <> ALL (ARRAY(SELECT p.queue FROM task_engine.paused_queues p))
    AND lane.task_class <> ALL (ARRAY(
      SELECT t.task_class FROM task_engine.limited_targets t WHERE t.in_use AND t.queue = ''))
    AND lane.queue <> ALL (ARRAY(
      SELECT t.queue FROM task_engine.limited_targets t WHERE t.in_use AND t.task_class = ''))
  ORDER BY w.due_at, w.task_id LIMIT $9::bigint
), picked AS MATERIALIZED (
  SELECT w.ctid AS place FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM candidates))
  ORDER BY w.due_at, w.task_id LIMIT $3::bigint
  FOR UPDATE SKIP LOCKED
), taken AS (
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM picked))
  RETURNING w.task_id, w.due_at, w.attempt, w.retry_number, w.queue, w.task_class
), held AS (
  INSERT INTO task_engine.claims (id, instance_id, claimed_at, task_ids, attempts, retry_numbers)
  SELECT $1, $2, clock_timestamp(), array_agg(t.task_id ORDER BY t.task_id),
    array_agg(t.attempt ORDER BY t.task_id), array_agg(t.retry_number ORDER BY t.task_id)
  FROM taken t
  HAVING count(*) > 0
)
SELECT
  EXISTS (SELECT FROM alive) AS alive,
  t.task_id, t.attempt, t.retry_number, t.task_class, t.queue, t.due_at,
  task_engine.readable(c.task_parameters), task_engine.readable(c.context),
  coalesce(
    'its parameters cannot be read: ' || task_engine.unreadable(c.task_parameters),
    'its context cannot be read: ' || task_engine.unreadable(c.context))
FROM (VALUES (1)) AS always(one)
LEFT JOIN taken t ON true
LEFT JOIN task_engine.created_tasks c ON c.id = t.task_id
ORDER BY t.due_at, t.task_id;

-- name: scan_heads
-- The head of each lane of these queues and classes, from a priority ($3) up. A loose
-- scan of waiting_tasks_by_lane: one probe for each lane, however many tasks wait in it.
-- A claim takes nothing from a paused queue, so its lanes are left out. If a task has ever had
-- limits, the lanes of keys are read, too, also if this engine does not know of a limit yet.
WITH RECURSIVE lane AS (
  SELECT q.queue, c.task_class, head.priority, head.due_at, head.task_id
  FROM (
    SELECT p.prefix || q.queue
    FROM (
      SELECT '' UNION ALL SELECT chr(31) WHERE EXISTS (SELECT FROM task_engine.limited_targets)
    ) AS p(prefix)
    CROSS JOIN unnest($1::text[]) AS q(queue)
    WHERE q.queue <> ALL (ARRAY(SELECT p.queue FROM task_engine.paused_queues p))
  ) AS q(queue)
  CROSS JOIN unnest($2::text[]) AS c(task_class)
  CROSS JOIN LATERAL (
    SELECT w.priority, w.due_at, w.task_id FROM task_engine.waiting_tasks w
    WHERE w.queue = q.queue AND w.task_class = c.task_class AND w.priority >= $3::integer
    ORDER BY w.priority, w.due_at, w.task_id LIMIT 1
  ) AS head
  UNION ALL
  SELECT lane.queue, lane.task_class, head.priority, head.due_at, head.task_id
  FROM lane
  CROSS JOIN LATERAL (
    SELECT w.priority, w.due_at, w.task_id FROM task_engine.waiting_tasks w
    WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority > lane.priority
    ORDER BY w.priority, w.due_at, w.task_id LIMIT 1
  ) AS head
)
SELECT queue, task_class, priority, due_at, task_id,
  CASE WHEN due_at <= clock_timestamp() THEN 0
    ELSE (extract(epoch FROM least(due_at, '9999-01-01Z') - clock_timestamp()) * 1000000)::bigint
  END AS due_in_us
FROM lane;

-- name: scan_known_heads
-- The heads of known lanes, from a position ($4, $5) on. Finds neither new lanes nor
-- tasks before the positions, so a claimer must not become idle after it; but it does not
-- read the dead rows before them, which vacuum cannot remove while a transaction holds an
-- old snapshot.
SELECT lane.place, head.due_at, head.task_id,
  CASE WHEN head.due_at <= clock_timestamp() THEN 0
    WHEN head.due_at IS NOT NULL THEN (extract(epoch FROM least(head.due_at, '9999-01-01Z') - clock_timestamp()) * 1000000)::bigint
  END AS due_in_us
FROM unnest($1::text[], $2::text[], $3::integer[], $4::timestamptz[], $5::bigint[])
  WITH ORDINALITY AS lane(queue, task_class, priority, from_due_at, from_id, place)
LEFT JOIN LATERAL (
  SELECT w.due_at, w.task_id FROM task_engine.waiting_tasks w
  WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority = lane.priority
    AND (w.due_at, w.task_id) >= (lane.from_due_at, lane.from_id)
    AND ltrim(lane.queue, chr(31)) <> ALL (ARRAY(SELECT p.queue FROM task_engine.paused_queues p))
  ORDER BY w.due_at, w.task_id LIMIT 1
) AS head ON true
ORDER BY lane.place;

-- name: register_idle
-- From its commit on, creators of tasks for this claimer notify it.
INSERT INTO task_engine.idle_claimers (instance_id, claimer, queues, lowest_priority, classes)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING;

-- name: unregister_idle
-- Under load this claimer needs no notification.
DELETE FROM task_engine.idle_claimers WHERE instance_id = $1 AND claimer = $2;

-- name: open_queue_writers
-- Transactions that have written to the queue and have not ended. Those that wrote before
-- this claimer was registered as idle may not notify it.
SELECT l.virtualtransaction FROM pg_locks l
WHERE l.locktype = 'relation' AND l.relation = 'task_engine.waiting_tasks'::regclass
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode = 'RowExclusiveLock' AND l.pid IS DISTINCT FROM pg_backend_pid();
