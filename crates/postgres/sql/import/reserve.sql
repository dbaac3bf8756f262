-- Ids from here on are higher; setval is not undone by a rollback, and need not be.
SELECT setval(pg_get_serial_sequence('task_engine.' || s.relation, 'id')::regclass, s.last)
FROM (VALUES ('created_tasks', $1::bigint), ('instances', $2::bigint), ('schedules', $3::bigint))
  AS s(relation, last)
WHERE s.last > 0
