-- Lives that are over, with claims left. Driven by the claims, which are few.
SELECT id
FROM task_engine_instances
WHERE id IN (SELECT instance_id FROM task_engine_claims)
    AND (stopped_at IS NOT NULL OR lost_at IS NOT NULL)
ORDER BY id
