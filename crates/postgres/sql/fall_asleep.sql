-- From its commit on, whoever creates tasks for this claimer wakes it.
INSERT INTO task_engine.sleepers (instance_id, claimer, queues, lowest_priority, classes)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
