INSERT INTO task_engine_cancel_requests (task_id, attempt, requested_at) VALUES (?1, ?2, ?3)
