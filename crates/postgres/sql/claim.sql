-- Takes due tasks of one priority from the queue, and holds them under claim $1
-- of instance $2. Which ones, is said by one of pick_lane.sql and
-- pick_lanes.sql, in the marker's place; what is read of them, by one of
-- claim_columns.sql and claim_columns_checked.sql.
--
-- Rows are never updated, so a row's address (ctid) stays true for as long as
-- this statement's snapshot sees the row. ARRAY(...) instead of joins: a LIMIT
-- that the planner does not know would make it scan.
WITH alive AS MATERIALIZED (
  SELECT FROM task_engine.instances
  WHERE id = $2 AND stopped_at IS NULL AND lost_at IS NULL
), /* picked */, taken AS (
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
  /* columns */
FROM (VALUES (1)) AS always(one)
LEFT JOIN taken t ON true
LEFT JOIN task_engine.created_tasks c ON c.id = t.task_id
ORDER BY t.due_at, t.task_id
