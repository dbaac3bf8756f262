-- Unique tasks: a key belongs to one task of a class at a time, the last one
-- that was created with it. The key is also in the context of its task
-- (unique_key), so that the row is found from there: no second index.
CREATE TABLE task_engine_unique_tasks (
    task_class TEXT NOT NULL,
    unique_key TEXT NOT NULL
        CONSTRAINT a_unique_key_has_1_to_500_bytes
        CHECK (length(CAST(unique_key AS BLOB)) BETWEEN 1 AND 500),
    task_id    INTEGER NOT NULL,
    PRIMARY KEY (task_class, unique_key)
) STRICT, WITHOUT ROWID;
