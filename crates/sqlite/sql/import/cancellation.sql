INSERT INTO task_engine_cancellations (task_id, attempt, requested_at, told_at, answer)
VALUES (?1, ?2, ?3, ?4, ?5)
