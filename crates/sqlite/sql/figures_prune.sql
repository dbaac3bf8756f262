-- The oldest before ?1, by the key, up to ?2.
DELETE FROM task_engine_figures
WHERE (minute, task_class, instance_id, generation) IN (
    SELECT minute, task_class, instance_id, generation
    FROM task_engine_figures
    WHERE minute < ?1
    ORDER BY minute
    LIMIT ?2
)
