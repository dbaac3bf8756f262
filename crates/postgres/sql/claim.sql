-- Takes up to $3 due tasks from lanes of one priority, in the order of time
-- and id, and holds them under claim $1 of instance $2.
--
-- Candidates are read without locks, more ($9) than wanted, so that two claimers
-- at the same position both find something; then the first ones that nobody has
-- locked are taken. Rows are never updated, so a row's address
-- (ctid) stays true for as long as this statement's snapshot sees the row.
-- The positions $6, $7 keep dead rows that vacuum cannot remove yet from being
-- read again and again. ARRAY(...) instead of joins: a LIMIT that the planner
-- does not know would make it scan.
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
ORDER BY t.due_at, t.task_id
