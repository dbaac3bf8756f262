-- Whether a life is not over on record. By its key.
SELECT EXISTS (
    SELECT 1
    FROM task_engine_instances
    WHERE id = ?1 AND stopped_at IS NULL AND lost_at IS NULL
)
