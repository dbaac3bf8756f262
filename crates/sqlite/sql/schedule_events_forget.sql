-- Keeps the newest events of a schedule. Two looks at a range of the index.
DELETE FROM task_engine_schedule_events
WHERE schedule_id = ?1 AND id <= (
    SELECT id FROM task_engine_schedule_events
    WHERE schedule_id = ?1
    ORDER BY id DESC
    LIMIT 1 OFFSET ?2
)
