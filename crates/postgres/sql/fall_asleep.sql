-- From its commit on, whoever creates tasks for this claimer wakes it.
INSERT INTO task_engine.sleepers (instance_id, claimer, queues, lowest_priority)
VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
