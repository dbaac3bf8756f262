-- The highest ids that were ever given.
SELECT clock_timestamp() AS now,
  coalesce(pg_sequence_last_value(pg_get_serial_sequence('task_engine.created_tasks', 'id')::regclass), 0) AS tasks,
  coalesce(pg_sequence_last_value(pg_get_serial_sequence('task_engine.instances', 'id')::regclass), 0) AS instances,
  coalesce(pg_sequence_last_value(pg_get_serial_sequence('task_engine.schedules', 'id')::regclass), 0) AS schedules
