-- Who sent it is not in the file; it was the engine of the attempt.
INSERT INTO task_engine_late_results
    (task_id, attempt, arrived_at, claim_id, instance_id, stopped_at, result, error)
VALUES (?1, ?2, ?3, 0, coalesce(?4, 0), ?3, ?5, ?6)
