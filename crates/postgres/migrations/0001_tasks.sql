-- The ledger: the big tables are only ever appended to, and an attempt ends
-- exactly once because a primary key says so.

CREATE TYPE task_engine.task_status AS ENUM ('waiting', 'running', 'stopped', 'failed', 'cancelled');
CREATE TYPE task_engine.task_execution_status AS ENUM ('running', 'success', 'failure', 'snoozed');

-- What is wrong with a JSON value; null if nothing is. The same limits as in
-- crates/core/src/json.rs. A value is printed whenever it is read, and jsonb
-- prints a number like 1e131071 in full: a row of some kilobytes could be an
-- answer of gigabytes, which no engine can read. So numbers are looked at before
-- anything is printed; only what cannot be long is printed at once.
CREATE FUNCTION task_engine.json_problem(value jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  bytes bigint;
BEGIN
  IF jsonb_path_exists(value, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")') THEN
    RETURN 'it is nested deeper than 64 levels';
  END IF;
  IF pg_column_size(value) <= 1200 AND octet_length(value::text) <= 1000 THEN
    RETURN NULL;
  END IF;
  IF jsonb_path_exists(value, 'strict $.** ? (@ >= 1e1000 || @ <= -1e1000)') THEN
    RETURN 'a number in it has more than 1000 digits before the decimal point;'
      ' send it as a string';
  END IF;
  -- No JSON takes eight times as many bytes in a table as it does as text.
  bytes := pg_column_size(value) / 8;
  IF bytes <= 1048576 THEN
    bytes := octet_length(value::text);
  END IF;
  IF bytes > 1048576 THEN
    RETURN format('%s bytes of text are too many (at most 1048576);'
      ' keep the data elsewhere and pass a reference to it', bytes);
  END IF;
  RETURN NULL;
END $$;

-- Refuses a value that is out of limits, with the reason: for the constraints of
-- tables. They accept small values without a call: fewer than 130 bytes cannot be
-- nested deeper than 64 levels. That check is not in a function, because the server
-- would plan it for every INSERT.
CREATE FUNCTION task_engine.check_json(value jsonb, name text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  problem CONSTANT text := task_engine.json_problem(value);
BEGIN
  IF problem IS NOT NULL THEN
    RAISE EXCEPTION '% cannot be stored: %', name, problem USING ERRCODE = 'check_violation';
  END IF;
  RETURN true;
END $$;

-- What is wrong with a value that is in a table already, also if the server
-- cannot even read it (a damaged page, a row of a table without constraints).
CREATE FUNCTION task_engine.json_error(value jsonb) RETURNS text
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
  RETURN task_engine.json_problem(value);
EXCEPTION WHEN OTHERS THEN
  RETURN SQLERRM;
END $$;
CREATE FUNCTION task_engine.unreadable(value jsonb) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN pg_column_size($1) < 200 AND octet_length($1::text) < 130 THEN NULL
    ELSE task_engine.json_error($1)
  END
$$;

-- For readers: the value, or the reason why it cannot be read.
CREATE FUNCTION task_engine.readable(value jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN task_engine.unreadable($1) IS NULL THEN $1
    ELSE jsonb_build_object('unreadable', task_engine.unreadable($1))
  END
$$;

-- Requested tasks. Insert only.
CREATE TABLE task_engine.created_tasks (
  -- Not the last number: a page "below an id" must be able to begin above all tasks.
  id bigint GENERATED ALWAYS AS IDENTITY (MAXVALUE 9223372036854775806) PRIMARY KEY,
  priority integer NOT NULL,
  scheduled_at timestamptz NOT NULL
    CONSTRAINT "a task is scheduled for a time before the year 9999"
    CHECK (isfinite(scheduled_at) AND scheduled_at < '9999-01-01Z'),
  created_at timestamptz NOT NULL,
  task_class text NOT NULL
    CONSTRAINT "a task class needs a name of 1 to 200 bytes"
    CHECK (octet_length(task_class) BETWEEN 1 AND 200),
  queue text NOT NULL
    CONSTRAINT "a queue needs a name of 1 to 200 bytes"
    CHECK (octet_length(queue) BETWEEN 1 AND 200),
  task_parameters jsonb NOT NULL
    CONSTRAINT "task parameters are a JSON object"
    CHECK (jsonb_typeof(task_parameters) = 'object')
    CONSTRAINT "task parameters are within the limits of JSON"
    CHECK (pg_column_size(task_parameters) < 200 AND octet_length(task_parameters::text) < 130
      OR task_engine.check_json(task_parameters, 'the task parameters')),
  context jsonb NOT NULL
    CONSTRAINT "the context of a task is a JSON object"
    CHECK (jsonb_typeof(context) = 'object')
    CONSTRAINT "the context of a task is within the limits of JSON"
    CHECK (pg_column_size(context) < 200 AND octet_length(context::text) < 130
      OR task_engine.check_json(context, 'the context')),
  -- A row of an index has at most 2700 bytes.
  CONSTRAINT "a correlation id is a text of 1 to 200 bytes"
  -- Without BETWEEN, whose inner AND a dump does not keep.
  CHECK (octet_length(context->>'correlation_id') >= 1
    AND octet_length(context->>'correlation_id') <= 200
    AND jsonb_typeof(context->'correlation_id') IN ('string', 'null'))
);
-- Flows: tasks that belong together share a correlation id in their context. A task
-- without one begins a flow of its own, named by its id: it has no row in this index.
CREATE INDEX created_tasks_by_correlation
  ON task_engine.created_tasks ((context->>'correlation_id'), id)
  WHERE (context->>'correlation_id') IS NOT NULL;

-- The queue, slim. Insert and delete, never update: a claim that has an older
-- snapshot must find a changed row gone, not see what it was.
CREATE TABLE task_engine.waiting_tasks (
  task_id bigint PRIMARY KEY,
  due_at timestamptz NOT NULL,
  priority integer NOT NULL,
  attempt integer NOT NULL,
  retry_number integer NOT NULL,
  queue text NOT NULL,
  task_class text NOT NULL
) WITH (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2
);
-- A lane is one (queue, task_class, priority). Each begins with the task that is due
-- first, so a claim reads neither tasks of other classes nor future tasks.
CREATE INDEX waiting_tasks_by_lane
  ON task_engine.waiting_tasks (queue, task_class, priority, due_at, task_id);

-- Claims: one row for each batch that an engine holds. Insert and delete.
CREATE TABLE task_engine.claims (
  id bigint PRIMARY KEY,
  instance_id bigint NOT NULL,
  claimed_at timestamptz NOT NULL,
  task_ids bigint[] NOT NULL,
  attempts integer[] NOT NULL,
  retry_numbers integer[] NOT NULL
) WITH (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

-- One row an attempt that has ended. Insert only; the primary key is the fence.
-- An attempt without an error is a success; one that postponed its task has the
-- error Snoozed, and no ends_task.
CREATE TABLE task_engine.ended_executions (
  task_id bigint NOT NULL,
  attempt integer NOT NULL,
  retry_number integer NOT NULL,
  claim_id bigint,                        -- null: cancelled while it waited
  instance_id bigint,
  started_at timestamptz,                 -- null: it never began
  stopped_at timestamptz NOT NULL,
  retry_at timestamptz,                   -- when the next attempt is due
  worker integer,
  next_retry_number integer,              -- the retry number of the next attempt
  ends_task task_engine.task_status,      -- null: the task goes on
  result jsonb
    CONSTRAINT "a result is within the limits of JSON"
    CHECK (pg_column_size(result) < 200 AND octet_length(result::text) < 130
      OR task_engine.check_json(result, 'the result')),
  error jsonb
    CONSTRAINT "an error is within the limits of JSON"
    CHECK (pg_column_size(error) < 200 AND octet_length(error::text) < 130
      OR task_engine.check_json(error, 'the error')),
  PRIMARY KEY (task_id, attempt),
  CONSTRAINT "an ending ends its task or has a time for the next attempt"
    CHECK ((ends_task IS NULL) = (retry_at IS NOT NULL))
);
-- There are few, and operators search for them.
CREATE INDEX ended_executions_failed_or_cancelled
  ON task_engine.ended_executions (ends_task, task_id) WHERE ends_task IN ('failed', 'cancelled');

-- Results that arrived after the attempt had ended: evidence only.
CREATE TABLE task_engine.late_results (
  task_id bigint NOT NULL,
  attempt integer NOT NULL,
  arrived_at timestamptz NOT NULL,
  result jsonb
    CONSTRAINT "a late result is within the limits of JSON"
    CHECK (pg_column_size(result) < 200 AND octet_length(result::text) < 130
      OR task_engine.check_json(result, 'the result')),
  error jsonb
    CONSTRAINT "a late error is within the limits of JSON"
    CHECK (pg_column_size(error) < 200 AND octet_length(error::text) < 130
      OR task_engine.check_json(error, 'the error')),
  PRIMARY KEY (task_id, attempt)
);

-- Requests to cancel a running attempt. Its engine or recovery writes the ending.
CREATE TABLE task_engine.cancel_requests (
  task_id bigint NOT NULL,
  attempt integer NOT NULL,
  instance_id bigint NOT NULL,
  requested_at timestamptz NOT NULL,
  PRIMARY KEY (task_id, attempt)
);

-- Engine sessions: one row from register to unregister.
CREATE TABLE task_engine.instances (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  host text NOT NULL,
  pid integer NOT NULL,
  process text,
  version text NOT NULL,
  workers integer NOT NULL,
  queues text[] NOT NULL,
  classes jsonb NOT NULL
    CONSTRAINT "the classes of an engine are within the limits of JSON"
    CHECK (pg_column_size(classes) < 200 AND octet_length(classes::text) < 130
      OR task_engine.check_json(classes, 'the classes of the engine')),
  -- Which workers take from which queues:
  -- [{"queues": ["mail"], "workers": 10, "lowest_priority": 5}, …]
  pools jsonb NOT NULL DEFAULT '[]',
  lease interval NOT NULL,
  started_at timestamptz NOT NULL,
  heartbeat_at timestamptz NOT NULL,
  stopped_at timestamptz,
  lost_at timestamptz,
  CONSTRAINT "the texts of an engine have at most 16 KiB"
    CHECK (greatest(octet_length(name), octet_length(host), octet_length(process),
      octet_length(version)) <= 16384)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX instances_live_by_name
  ON task_engine.instances (name) WHERE stopped_at IS NULL AND lost_at IS NULL;

-- Claimers that are idle, or were a moment ago, and want a notification. One row for
-- each claimer, not for each engine: every worker pool has a claimer.
CREATE TABLE task_engine.idle_claimers (
  instance_id bigint NOT NULL,
  claimer bigint NOT NULL,
  queues text[] NOT NULL,
  lowest_priority integer NOT NULL,
  -- Null: tasks of every class.
  classes text[],
  PRIMARY KEY (instance_id, claimer)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- Queues that engines take no tasks from. Every claim reads this table, so that none
-- that begins after a pause has committed takes from its queue.
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

-- Unique tasks: a key belongs to one task of a class at a time, the last one
-- that was created with it. The key is also in the context of its task
-- (unique_key), so that the row is found from there: no second index.
CREATE TABLE task_engine.unique_tasks (
  task_class text NOT NULL,
  unique_key text NOT NULL
    CONSTRAINT "a unique key has 1 to 500 bytes"
    CHECK (octet_length(unique_key) BETWEEN 1 AND 500),
  task_id bigint NOT NULL,
  PRIMARY KEY (task_class, unique_key)
) WITH (
  -- A key that goes over to another task is a change within its page.
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000
);

-- Progress: one row for each attempt that reported something. Only its engine writes
-- it, and only forward: it is updated.
CREATE TABLE task_engine.execution_progress (
  task_id bigint NOT NULL,
  attempt integer NOT NULL,
  version bigint NOT NULL,                -- grows with every report
  lines integer NOT NULL,                 -- of the whole log, with dropped ones
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

-- Logs: one row for each line. Insert only; a number without a row was dropped.
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

-- Cancel requests whose attempt has ended. Insert only. The response is written with the
-- end of the attempt; without one (null), the attempt ended before its code could
-- respond.
CREATE TABLE task_engine.cancellations (
  task_id bigint NOT NULL,
  attempt integer NOT NULL,
  requested_at timestamptz NOT NULL,
  delivered_at timestamptz,
  answer text CONSTRAINT "an answer is a word" CHECK (octet_length(answer) <= 32),
  PRIMARY KEY (task_id, attempt),
  CONSTRAINT "a task is cancelled before the year 9999"
    CHECK (isfinite(requested_at) AND isfinite(coalesce(delivered_at, requested_at))
      AND greatest(requested_at, delivered_at) < '9999-01-01Z')
);

-- Attempts that engines hold. A claim stays while one of its attempts runs, so those
-- that have ended are excluded.
CREATE VIEW task_engine.held_attempts AS
SELECT k.id AS claim_id, k.instance_id, k.claimed_at, h.task_id, h.attempt, h.retry_number
FROM task_engine.claims k
CROSS JOIN LATERAL unnest(k.task_ids, k.attempts, k.retry_numbers)
  AS h(task_id, attempt, retry_number)
WHERE NOT EXISTS (
  SELECT FROM task_engine.ended_executions e
  WHERE e.task_id = h.task_id AND e.attempt = h.attempt
);

-- The book's table. By id and by page it is fast. Its status is computed, row
-- by row: to look for one, see tasks_with_status below. Not a UNION ALL of one
-- branch a status: PostgreSQL would prune those that a filter excludes, but a
-- page by id (ORDER BY id LIMIT 20) would read and sort every task.
CREATE VIEW task_engine.tasks AS
SELECT
  c.id,
  CASE
    WHEN w.task_id IS NOT NULL THEN 'waiting'
    WHEN h.task_id IS NOT NULL THEN 'running'
    ELSE e.ends_task
  END::task_engine.task_status AS status,
  c.created_at,
  coalesce(h.claimed_at, e.stopped_at, c.created_at) AS updated_at,
  i.name AS instance,
  c.task_class,
  c.task_parameters,
  coalesce(w.due_at, c.scheduled_at) AS scheduled_at,
  CASE
    WHEN coalesce(w.retry_number, h.retry_number, e.retry_number, 0) > 0
    THEN c.context || jsonb_build_object(
      'retry_number', coalesce(w.retry_number, h.retry_number, e.retry_number))
    ELSE c.context
  END AS context,
  c.queue,
  c.priority,
  -- Claimed ones: a task that was cancelled while it waited was never begun.
  (SELECT count(*) FROM task_engine.ended_executions a
   WHERE a.task_id = c.id AND a.claim_id IS NOT NULL)::integer
    + (h.task_id IS NOT NULL)::integer AS attempts,
  coalesce(w.retry_number, h.retry_number, e.retry_number, 0) AS retry_number,
  CASE WHEN h.task_id IS NULL
      AND (e.ends_task IS NOT NULL OR e.error->>'exception' IS DISTINCT FROM 'Snoozed')
    THEN e.error END AS error,
  -- The result of a task that succeeded.
  CASE WHEN w.task_id IS NULL AND h.task_id IS NULL THEN e.result END AS result,
  -- A task that has none begins a flow of its own.
  coalesce(c.context->>'correlation_id', c.id::text) AS correlation_id,
  CASE WHEN jsonb_typeof(c.context->'parent_id') = 'number'
      AND c.context->>'parent_id' ~ '^[1-9][0-9]{0,17}$'
    THEN (c.context->>'parent_id')::bigint END AS parent_id
FROM task_engine.created_tasks c
LEFT JOIN task_engine.waiting_tasks w ON w.task_id = c.id
LEFT JOIN LATERAL (
  SELECT k.instance_id, k.claimed_at, c.id AS task_id, held.attempt, held.retry_number
  FROM task_engine.claims k
  CROSS JOIN LATERAL unnest(k.task_ids, k.attempts, k.retry_numbers)
    AS held(task_id, attempt, retry_number)
  WHERE w.task_id IS NULL AND k.task_ids @> ARRAY[c.id] AND held.task_id = c.id
    AND NOT EXISTS (
      SELECT FROM task_engine.ended_executions e
      WHERE e.task_id = c.id AND e.attempt = held.attempt)
) h ON true
LEFT JOIN LATERAL (
  SELECT * FROM task_engine.ended_executions e
  WHERE e.task_id = c.id ORDER BY e.attempt DESC LIMIT 1
) e ON true
LEFT JOIN task_engine.instances i ON i.id = coalesce(h.instance_id, e.instance_id)
  AND w.task_id IS NULL;

-- The book's executions: those that have begun.
-- The id is made of the two that identify an execution; a task's attempts follow
-- each other in its order. Not a bigint: no task id is too large for it.
CREATE VIEW task_engine.task_executions AS
SELECT
  (e.task_id::numeric * 2147483648 + e.attempt)::numeric(39, 0) AS id,
  e.task_id, e.attempt,
  CASE WHEN e.error IS NULL THEN 'success'
    WHEN e.ends_task IS NULL AND e.error->>'exception' = 'Snoozed' THEN 'snoozed'
    ELSE 'failure' END::task_engine.task_execution_status AS status,
  e.started_at, e.stopped_at, e.result, e.error, e.retry_number, i.name AS instance, e.worker,
  e.started_at AS created_at, e.stopped_at AS updated_at
FROM task_engine.ended_executions e
LEFT JOIN task_engine.instances i ON i.id = e.instance_id
WHERE e.started_at IS NOT NULL
UNION ALL
SELECT
  (h.task_id::numeric * 2147483648 + h.attempt)::numeric(39, 0),
  h.task_id, h.attempt, 'running', h.claimed_at, NULL, NULL, NULL, h.retry_number, i.name, NULL,
  h.claimed_at, h.claimed_at
FROM task_engine.held_attempts h
LEFT JOIN task_engine.instances i ON i.id = h.instance_id;

-- Tasks in one status, the newest first: a page of them, below an id. Candidates
-- come from where tasks of this status are, in order, and the view is asked about
-- each by its id until the page is full.
CREATE FUNCTION task_engine.tasks_with_status(
  status task_engine.task_status, page_size bigint DEFAULT 100, before_id bigint DEFAULT NULL
) RETURNS SETOF task_engine.tasks
LANGUAGE plpgsql STABLE AS $$
DECLARE
  wanted CONSTANT task_engine.task_status := tasks_with_status.status;
  below CONSTANT bigint := coalesce(before_id, 9223372036854775807);
BEGIN
  IF wanted = 'waiting' THEN
    RETURN QUERY SELECT t.* FROM (
      SELECT w.task_id FROM task_engine.waiting_tasks w
      WHERE w.task_id < below ORDER BY w.task_id DESC
    ) AS c CROSS JOIN LATERAL (
      SELECT * FROM task_engine.tasks v WHERE v.id = c.task_id AND v.status = wanted
    ) AS t ORDER BY c.task_id DESC LIMIT page_size;
  ELSIF wanted = 'running' THEN
    RETURN QUERY SELECT t.* FROM (
      SELECT h.task_id FROM task_engine.held_attempts h
      WHERE h.task_id < below ORDER BY h.task_id DESC
    ) AS c CROSS JOIN LATERAL (
      SELECT * FROM task_engine.tasks v WHERE v.id = c.task_id AND v.status = wanted
    ) AS t ORDER BY c.task_id DESC LIMIT page_size;
  ELSIF wanted = 'stopped' THEN
    -- By the primary key, from its end: most tasks end like this.
    RETURN QUERY SELECT t.* FROM (
      SELECT e.task_id FROM task_engine.ended_executions e
      WHERE e.ends_task = 'stopped' AND e.task_id < below ORDER BY e.task_id DESC
    ) AS c CROSS JOIN LATERAL (
      SELECT * FROM task_engine.tasks v WHERE v.id = c.task_id AND v.status = wanted
    ) AS t ORDER BY c.task_id DESC LIMIT page_size;
  ELSE
    -- By the index of failed and cancelled attempts, each task once: it may have been
    -- retried by an operator, and have failed again.
    RETURN QUERY SELECT t.* FROM (
      SELECT DISTINCT e.task_id FROM task_engine.ended_executions e
      WHERE e.ends_task IN ('failed', 'cancelled') AND e.ends_task = wanted AND e.task_id < below
      ORDER BY e.task_id DESC
    ) AS c CROSS JOIN LATERAL (
      SELECT * FROM task_engine.tasks v WHERE v.id = c.task_id AND v.status = wanted
    ) AS t ORDER BY c.task_id DESC LIMIT page_size;
  END IF;
END $$;
