-- Reads the partial index task_engine_living_instances.
SELECT DISTINCT queue.value
FROM task_engine_instances AS life, json_each(life.queues) AS queue
WHERE life.stopped_at IS NULL AND life.lost_at IS NULL
