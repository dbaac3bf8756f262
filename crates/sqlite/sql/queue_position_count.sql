-- How many tasks of a lane come before (?4, ?5), up to ?6: a range of
-- task_engine_waiting_lanes.
SELECT count(*)
FROM (
    SELECT 1
    FROM task_engine_waiting_tasks
    WHERE queue = ?1 AND task_class = ?2 AND priority = ?3
        AND (due_at, task_id) < (?4, ?5)
    LIMIT ?6
)
