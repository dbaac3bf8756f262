-- The oldest, by the key, up to $2.
DELETE FROM task_engine.figures WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM task_engine.figures
  WHERE minute < now() - $1::bigint * interval '1 microsecond'
  ORDER BY minute LIMIT $2::bigint))
