INSERT INTO task_engine_execution_progress
    (task_id, attempt, version, lines, percent, message, reported_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
