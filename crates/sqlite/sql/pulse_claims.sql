-- The claims of one engine. Reads all claims, which are few.
SELECT id FROM task_engine_claims WHERE instance_id = ?1 ORDER BY id
