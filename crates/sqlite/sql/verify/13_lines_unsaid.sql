-- The lines that are kept are some of those that were said.
SELECT 'task ' || log.task_id || ', attempt ' || log.attempt || ' has line ' || max(log.line)
    || ', but has said ' || coalesce(progress.lines, 0) || ' lines'
FROM task_engine_execution_logs AS log
LEFT JOIN task_engine_execution_progress AS progress
    ON progress.task_id = log.task_id AND progress.attempt = log.attempt
GROUP BY log.task_id, log.attempt
HAVING max(log.line) > coalesce(progress.lines, 0)
