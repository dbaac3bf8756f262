-- The next lane that has waiting tasks: three searches in
-- task_engine_waiting_lanes, as in pulse_next_class.sql.
SELECT queue, task_class, priority
FROM (
    SELECT queue, task_class, priority
    FROM task_engine_waiting_tasks
    WHERE queue = ?1 AND task_class = ?2 AND priority > ?3
    ORDER BY priority
    LIMIT 1
)
UNION ALL
SELECT queue, task_class, priority
FROM (
    SELECT queue, task_class, priority
    FROM task_engine_waiting_tasks
    WHERE queue = ?1 AND task_class > ?2
    ORDER BY task_class, priority
    LIMIT 1
)
UNION ALL
SELECT queue, task_class, priority
FROM (
    SELECT queue, task_class, priority
    FROM task_engine_waiting_tasks
    WHERE queue > ?1
    ORDER BY queue, task_class, priority
    LIMIT 1
)
LIMIT 1
