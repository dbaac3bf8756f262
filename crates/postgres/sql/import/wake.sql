-- Whatever was imported: engines look.
SELECT task_engine.wake(''), pg_notify('task-engine-schedule', '')
