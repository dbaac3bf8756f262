-- name: broken_schedules
-- There are few schedules, and fewer with an error.
SELECT name, error FROM task_engine_schedules WHERE error IS NOT NULL ORDER BY name LIMIT 100;

-- name: failed
-- Of the last failed tasks, those of the last hour that are still failed, by class: by
-- task_engine_failed_or_cancelled.
SELECT task.task_class, count(DISTINCT task.id), max(task.id)
FROM (
    SELECT task_id, stopped_at FROM task_engine_ended_executions
    WHERE ends_task = 'failed' AND ends_task <> 'stopped'
    ORDER BY task_id DESC
    LIMIT ?2
) AS last
CROSS JOIN task_engine_tasks AS task ON task.id = last.task_id
WHERE last.stopped_at >= ?1 AND task.status = 'failed'
GROUP BY task.task_class;

-- name: first_due
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
WHERE first.due_at <= clock.now;

-- name: objects
-- The objects that the migrations created, as SQLite stores them.
SELECT type, name, sql FROM sqlite_schema
WHERE (name LIKE 'task\_engine\_%' ESCAPE '\') AND sql IS NOT NULL
ORDER BY name;
