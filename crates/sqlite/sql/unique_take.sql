-- Takes a key that is free. A write, so that whoever comes here first has the
-- file to himself from now on, also in a transaction that has only read so far.
INSERT INTO task_engine_unique_tasks (task_class, unique_key, task_id)
VALUES (?1, ?2, 0)
ON CONFLICT (task_class, unique_key) DO NOTHING
