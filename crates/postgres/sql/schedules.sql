-- A page of schedules, by the index on their names.
SELECT s.* FROM task_engine.schedules s
WHERE s.name > $1 ORDER BY s.name LIMIT $2
