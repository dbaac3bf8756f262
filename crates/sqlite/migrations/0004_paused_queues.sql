-- Queues that nobody takes tasks from for now. Every claim looks here itself.
CREATE TABLE task_engine_paused_queues (
    queue     TEXT PRIMARY KEY,
    reason    TEXT
        CONSTRAINT the_reason_of_a_pause_has_at_most_1000_bytes CHECK (length(CAST(reason AS BLOB)) <= 1000),
    paused_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which of an engine's workers take from which of its queues:
-- [{"queues": ["mail"], "workers": 10, "lowest_priority": 5}, …]
ALTER TABLE task_engine_instances ADD COLUMN pools TEXT NOT NULL DEFAULT '[]';
