-- The claim of an attempt that is about to be completed. By its key.
SELECT instance_id, attempts FROM task_engine_claims WHERE id = ?1
