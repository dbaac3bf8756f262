-- The first due task of a queue and class: one search a priority, of which there
-- are few, in task_engine_waiting_lanes.
WITH RECURSIVE lane (priority) AS (
    SELECT min(priority) FROM task_engine_waiting_tasks WHERE queue = ?1 AND task_class = ?2
    UNION ALL
    SELECT (
        SELECT min(next.priority) FROM task_engine_waiting_tasks AS next
        WHERE next.queue = ?1 AND next.task_class = ?2 AND next.priority > lane.priority
    )
    FROM lane WHERE lane.priority IS NOT NULL LIMIT 100
)
SELECT min(first.due_at)
FROM lane, (SELECT ?3 AS now) AS clock
JOIN task_engine_waiting_tasks AS first ON first.task_id = (
    SELECT one.task_id FROM task_engine_waiting_tasks AS one
    WHERE one.queue = ?1 AND one.task_class = ?2 AND one.priority = lane.priority
    ORDER BY one.due_at LIMIT 1
)
WHERE first.due_at <= clock.now
