-- Removes claims that were taken back. By the primary key.
DELETE FROM task_engine.claims WHERE id = ANY ($1::bigint[])
