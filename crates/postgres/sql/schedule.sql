-- One schedule, by its unique name, and the time: a row of nulls if there is none.
SELECT clock_timestamp() AS now, s.*
FROM (SELECT) AS always LEFT JOIN task_engine.schedules s ON s.name = $1
