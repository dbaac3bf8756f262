-- Queues that nobody takes tasks from for now. Every claim looks here itself,
-- so that none that begins after a pause has committed takes from its queue.
CREATE TABLE task_engine.paused_queues (
  queue text PRIMARY KEY,
  reason text,
  paused_at timestamptz NOT NULL
);

-- Which of an engine's workers take from which of its queues:
-- [{"queues": ["mail"], "workers": 10, "lowest_priority": 5}, …]
ALTER TABLE task_engine.instances ADD COLUMN pools jsonb NOT NULL DEFAULT '[]';
