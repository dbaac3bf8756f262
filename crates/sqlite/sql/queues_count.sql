-- How many tasks of a lane are due by ?4, and how many later, up to ?5 each: two
-- ranges of task_engine_waiting_lanes.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM task_engine_waiting_tasks
            WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND due_at <= ?4
            LIMIT ?5
        )
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM task_engine_waiting_tasks
            WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND due_at > ?4
            LIMIT ?5
        )
    )
