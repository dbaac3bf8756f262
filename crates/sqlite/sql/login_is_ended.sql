-- By its key.
SELECT EXISTS (SELECT 1 FROM task_engine_ended_logins WHERE id = ?1)
