-- From its commit on, whoever creates tasks wakes this engine.
INSERT INTO task_engine.sleepers (instance_id) VALUES ($1) ON CONFLICT DO NOTHING
