-- For endings that found their attempt ended: a batch that is sent again after
-- a lost answer finds its own rows (same claim, same end) and is none of
-- anybody's business, nor is what comes after a success: only the holder itself
-- says that, in a transaction of its own. The rest is kept as evidence.
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
SELECT task_id, attempt FROM late
