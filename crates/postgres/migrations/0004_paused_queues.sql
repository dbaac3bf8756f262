-- Queues that nobody takes tasks from for now. Every claim looks here itself,
-- so that none that begins after a pause has committed takes from its queue.
CREATE TABLE task_engine.paused_queues (
  queue text PRIMARY KEY
    CONSTRAINT "a paused queue has a name of 1 to 200 bytes"
    CHECK (octet_length(queue) BETWEEN 1 AND 200),
  reason text
    CONSTRAINT "the reason of a pause has at most 1000 bytes"
    CHECK (octet_length(reason) <= 1000),
  paused_at timestamptz NOT NULL
    CONSTRAINT "a queue is paused before the year 9999"
    CHECK (isfinite(paused_at) AND paused_at < '9999-01-01Z')
);

-- Which of an engine's workers take from which of its queues:
-- [{"queues": ["mail"], "workers": 10, "lowest_priority": 5}, …]
ALTER TABLE task_engine.instances ADD COLUMN pools jsonb NOT NULL DEFAULT '[]';
