-- What one life holds.
SELECT held.task_id, held.attempt, created.task_class, held.claimed_at
FROM task_engine_held_attempts AS held
JOIN task_engine_created_tasks AS created ON created.id = held.task_id
WHERE held.instance_id = ?1
ORDER BY held.task_id, held.attempt
