-- Recovery finds what is held by a life that is on record, and only that.
SELECT 'task ' || task_id || ' is held as attempt ' || attempt || ' by instance ' || instance_id || ', which is not on record'
FROM task_engine_held_attempts
WHERE instance_id NOT IN (SELECT id FROM task_engine_instances)
ORDER BY task_id
