-- How far an attempt is. Only ever forward, by the version. Nothing is kept about
-- a task that retention has removed. By keys alone.
INSERT INTO task_engine_execution_progress
    (task_id, attempt, version, lines, percent, message, reported_at)
SELECT id, ?2, ?3, ?4, ?5, ?6, ?7
FROM task_engine_created_tasks
WHERE id = ?1
ON CONFLICT (task_id, attempt) DO UPDATE SET
    version = excluded.version,
    lines = excluded.lines,
    percent = excluded.percent,
    message = excluded.message,
    reported_at = excluded.reported_at
WHERE version < excluded.version
