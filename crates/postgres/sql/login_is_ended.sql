-- By its key.
SELECT EXISTS (SELECT FROM task_engine.ended_logins WHERE id = $1) AS is_ended
