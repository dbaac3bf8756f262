-- What attempts say while they run, and what became of wishes to cancel them.

-- One row an attempt that has said something. Its holder alone writes it, and
-- an attempt has one holder ever; so this is the only table beside instances
-- that is updated, and only forward.
CREATE TABLE task_engine.execution_progress (
  task_id bigint NOT NULL,
  attempt integer NOT NULL,
  version bigint NOT NULL,                -- grows with all that is said
  lines integer NOT NULL,                 -- said in all, with those that were dropped
  percent double precision,
  message text
    CONSTRAINT "a message of progress has at most 16 KiB"
    CHECK (octet_length(message) <= 16384),
  -- Of the percentage and the message.
  reported_at timestamptz
    CONSTRAINT "progress is reported before the year 9999"
    CHECK (isfinite(reported_at) AND reported_at < '9999-01-01Z'),
  PRIMARY KEY (task_id, attempt)
) WITH (fillfactor = 50);

-- One row a line. Insert only; a number without a row was dropped.
CREATE TABLE task_engine.execution_logs (
  task_id bigint NOT NULL,
  attempt integer NOT NULL,
  line integer NOT NULL,
  logged_at timestamptz NOT NULL
    CONSTRAINT "a line is logged before the year 9999"
    CHECK (isfinite(logged_at) AND logged_at < '9999-01-01Z'),
  level text NOT NULL
    CONSTRAINT "a level of a log is a word" CHECK (octet_length(level) <= 16),
  message text NOT NULL
    CONSTRAINT "a line of a log has at most 16 KiB" CHECK (octet_length(message) <= 16384),
  PRIMARY KEY (task_id, attempt, line)
);

-- Wishes to cancel a running attempt that are over. Insert only. The engine's
-- word is written with the end of the attempt; without one (null), the attempt
-- ended before its code could answer.
CREATE TABLE task_engine.cancellations (
  task_id bigint NOT NULL,
  attempt integer NOT NULL,
  requested_at timestamptz NOT NULL,
  told_at timestamptz,
  answer text CONSTRAINT "an answer is a word" CHECK (octet_length(answer) <= 32),
  PRIMARY KEY (task_id, attempt),
  CONSTRAINT "a task is cancelled before the year 9999"
    CHECK (isfinite(requested_at) AND isfinite(coalesce(told_at, requested_at))
      AND greatest(requested_at, told_at) < '9999-01-01Z')
);
