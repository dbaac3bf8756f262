-- Other lives whose lease has run out. Reads the partial index
-- task_engine_living_instances.
SELECT id
FROM task_engine_instances
WHERE stopped_at IS NULL
    AND lost_at IS NULL
    AND id <> ?1
    AND ?2 - heartbeat_at > lease_ms * 1000
ORDER BY id
