-- Keeps the newest slots of a schedule. Two looks at a range of the primary key.
DELETE FROM task_engine_fired_slots
WHERE schedule_id = ?1 AND slot <= (
    SELECT slot
    FROM task_engine_fired_slots
    WHERE schedule_id = ?1
    ORDER BY slot DESC
    LIMIT 1 OFFSET ?2
)
