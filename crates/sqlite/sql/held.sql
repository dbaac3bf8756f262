-- All that engines hold, with their names. As many rows as busy workers.
SELECT held.task_id, held.attempt, held.retry_number, held.claimed_at, instance.name
FROM task_engine_held_attempts AS held
LEFT JOIN task_engine_instances AS instance ON instance.id = held.instance_id
