-- The next queue and class that have waiting tasks: two searches in
-- task_engine_waiting_lanes, whatever the number of tasks. Not written as
-- (queue, task_class) > (?1, ?2), for which SQLite reads all rows of the pair.
SELECT queue, task_class
FROM (
    SELECT queue, task_class
    FROM task_engine_waiting_tasks
    WHERE queue = ?1 AND task_class > ?2
    ORDER BY task_class
    LIMIT 1
)
UNION ALL
SELECT queue, task_class
FROM (
    SELECT queue, task_class
    FROM task_engine_waiting_tasks
    WHERE queue > ?1
    ORDER BY queue, task_class
    LIMIT 1
)
LIMIT 1
