-- Takes the lock of the one who writes, and changes nothing.
DELETE FROM task_engine_claims WHERE id = -1
