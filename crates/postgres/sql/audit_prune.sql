-- The first of the primary key are the oldest. Of two engines at once, one waits
-- for nothing and finds less.
DELETE FROM task_engine.audit
WHERE id = ANY (ARRAY(
    SELECT id FROM task_engine.audit ORDER BY id LIMIT $2::bigint FOR UPDATE SKIP LOCKED))
  AND at < clock_timestamp() - $1::bigint * interval '1 microsecond'
