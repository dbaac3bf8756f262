-- The first of the primary key are the oldest.
DELETE FROM task_engine_audit
WHERE id IN (SELECT id FROM task_engine_audit WHERE id > 0 ORDER BY id LIMIT ?2)
  AND at < ?1
