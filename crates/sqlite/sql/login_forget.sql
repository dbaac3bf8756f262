-- Few: each is forgotten when it would have expired anyway.
DELETE FROM task_engine_ended_logins WHERE expires_at < ?1
