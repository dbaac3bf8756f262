-- Several lanes of one priority, merged in the order of time and id. Candidates
-- are read without locks, more ($9) than wanted, so that two claimers at the same
-- position both find something; then the first ones that nobody has locked are
-- taken. Positions ($6, $7) and index as in pick_lane.sql.
candidates AS MATERIALIZED (
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
  ORDER BY w.due_at, w.task_id LIMIT $9::bigint
), picked AS MATERIALIZED (
  SELECT w.ctid AS place FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM candidates))
  ORDER BY w.due_at, w.task_id LIMIT $3::bigint
  FOR UPDATE SKIP LOCKED
)
