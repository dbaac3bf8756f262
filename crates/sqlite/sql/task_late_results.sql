-- What came late about one task. Ranges of primary keys.
SELECT late.attempt, late.arrived_at, ended.stopped_at, late.result, late.error
FROM task_engine_late_results AS late
JOIN task_engine_ended_executions AS ended
    ON ended.task_id = late.task_id AND ended.attempt = late.attempt
WHERE late.task_id = ?1
ORDER BY late.attempt
