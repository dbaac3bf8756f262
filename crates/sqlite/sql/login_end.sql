INSERT INTO task_engine_ended_logins (id, expires_at) VALUES (?1, ?2)
ON CONFLICT (id) DO NOTHING
