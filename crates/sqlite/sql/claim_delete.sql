-- A claim whose attempts have all ended. By its key.
DELETE FROM task_engine_claims WHERE id = ?1
