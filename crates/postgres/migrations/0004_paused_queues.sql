-- Queues that nobody takes tasks from for now. Every claim looks here itself,
-- so that none that begins after a pause has committed takes from its queue.
CREATE TABLE task_engine.paused_queues (
  queue text PRIMARY KEY,
  reason text,
  paused_at timestamptz NOT NULL
    CONSTRAINT "a queue is paused before the year 9999"
    CHECK (isfinite(paused_at) AND paused_at < '9999-01-01Z')
);

-- Which of an engine's workers take from which of its queues:
-- [{"queues": ["mail"], "workers": 10, "lowest_priority": 5}, …]
ALTER TABLE task_engine.instances ADD COLUMN pools jsonb NOT NULL DEFAULT '[]';
