SELECT DISTINCT unnest(queues) AS queue FROM task_engine.instances
WHERE stopped_at IS NULL AND lost_at IS NULL
