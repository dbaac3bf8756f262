-- The ledger: the big tables are only ever appended to, and an attempt ends
-- exactly once because a primary key says so.

CREATE TYPE task_engine.task_status AS ENUM ('waiting', 'running', 'stopped', 'failed', 'cancelled');
CREATE TYPE task_engine.task_execution_status AS ENUM ('running', 'success', 'failure', 'snoozed');

-- What is wrong with a JSON value; null if nothing is. The same limits as in
-- crates/model/src/json.rs. A value is printed whenever it is read, and jsonb
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

-- Refuses a value that is out of limits, and says why: for the constraints of
-- tables. They let small values pass without a call: what has fewer than 130 bytes
-- cannot be nested deeper than 64 levels. No function does that for them, because
-- the server would plan it anew for every statement that inserts.
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

-- For whoever reads: the value, or why it cannot be read, in its place.
CREATE FUNCTION task_engine.readable(value jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN task_engine.unreadable($1) IS NULL THEN $1
    ELSE jsonb_build_object('unreadable', task_engine.unreadable($1))
  END
$$;

-- What was asked for. Insert only.
CREATE TABLE task_engine.created_tasks (
  -- The last number is none: whoever asks for tasks below an id must be able to
  -- name one that is above all of them.
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
      OR task_engine.check_json(context, 'the context'))
);

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
-- A lane is one (queue, task_class, priority). Each begins with what is due
-- first, so neither a crowd of another class nor one of future tasks is ever
-- read past.
CREATE INDEX waiting_tasks_by_lane
  ON task_engine.waiting_tasks (queue, task_class, priority, due_at, task_id);

-- What engines hold, one row a batch. Insert and delete.
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
-- Few, and what an operator asks for.
CREATE INDEX ended_executions_to_look_at
  ON task_engine.ended_executions (ends_task, task_id) WHERE ends_task IN ('failed', 'cancelled');

-- What came after the end: evidence, never a verdict.
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

-- Wishes to cancel a running attempt. Its holder writes the ending, or recovery.
CREATE TABLE task_engine.cancel_requests (
  task_id bigint NOT NULL,
  attempt integer NOT NULL,
  instance_id bigint NOT NULL,
  requested_at timestamptz NOT NULL,
  PRIMARY KEY (task_id, attempt)
);

-- Who is or was alive, one row a life of an engine.
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
  lease interval NOT NULL,
  started_at timestamptz NOT NULL,
  heartbeat_at timestamptz NOT NULL,
  stopped_at timestamptz,
  lost_at timestamptz,
  CONSTRAINT "the texts of an engine have at most 16 KiB"
    CHECK (greatest(octet_length(name), octet_length(host), octet_length(process),
      octet_length(version)) <= 16384)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX instances_living_by_name
  ON task_engine.instances (name) WHERE stopped_at IS NULL AND lost_at IS NULL;

-- Claimers that want to be woken, and for what: those that sleep, or have slept a
-- moment ago. One row a claimer, not an engine: each pool of workers has one, and
-- the waking of one must not take back that another sleeps.
CREATE TABLE task_engine.sleepers (
  instance_id bigint NOT NULL,
  claimer bigint NOT NULL,
  queues text[] NOT NULL,
  lowest_priority integer NOT NULL,
  -- Null: tasks of every class.
  classes text[],
  PRIMARY KEY (instance_id, claimer)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- A wake-up for engines that know this class, if one sleeps that takes from this
-- queue, of this priority (the highest of what was created; null: whichever). A
-- notification takes a lock on the whole database from before the commit until
-- after it, so producers pay dearly for those that nobody needs.
--
-- Without a race, because this runs after the caller has locked waiting_tasks
-- (as every INSERT does, until its commit), and looks with a snapshot of its own
-- (VOLATILE, in READ COMMITTED; else it does not look). An engine says that it
-- sleeps, then waits for those who hold that lock, then looks for work once
-- more, and only then sleeps. So either the sleeper is seen here, or what was
-- created is seen there.
--
-- The payload is the class, as in the book; within one transaction equal
-- notifications become one.
CREATE FUNCTION task_engine.wake(
  task_class text, queue text DEFAULT NULL, priority integer DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF current_setting('transaction_isolation') = 'read committed'
    AND NOT EXISTS (
      SELECT FROM task_engine.sleepers s
      WHERE (wake.queue IS NULL OR wake.queue = ANY (s.queues)
          AND (s.classes IS NULL OR wake.task_class = ANY (s.classes)))
        AND (wake.priority IS NULL OR wake.priority >= s.lowest_priority))
  THEN
    RETURN false;
  END IF;
  PERFORM pg_notify('task-engine', task_class);
  RETURN true;
END $$;

-- The public door for many tasks. Arrays go side by side; those left out, or
-- null in a place, mean the default. The ids come in the order of the arrays.
CREATE FUNCTION task_engine.create_tasks(
  task_classes text[],
  task_parameters jsonb[] DEFAULT NULL,
  scheduled_ats timestamptz[] DEFAULT NULL,
  delays interval[] DEFAULT NULL,
  priorities integer[] DEFAULT NULL,
  queues text[] DEFAULT NULL,
  contexts jsonb[] DEFAULT NULL
) RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
DECLARE
  -- Not the transaction's time: "in ten minutes" counts from the call.
  asked_at CONSTANT timestamptz := statement_timestamp();
BEGIN
  RETURN QUERY
  WITH created AS (
    INSERT INTO task_engine.created_tasks
      (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
    SELECT
      a.class, coalesce(a.parameters, '{}'), coalesce(a.context, '{}'),
      coalesce(a.queue, 'default'), coalesce(a.priority, 0),
      coalesce(a.scheduled_at, asked_at + a.delay, asked_at), asked_at
    FROM unnest($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY
      AS a(class, parameters, scheduled_at, delay, priority, queue, context, place)
    ORDER BY a.place
    RETURNING id, task_class, queue, priority, scheduled_at
  ), queued AS (
    INSERT INTO task_engine.waiting_tasks
      (task_id, due_at, priority, attempt, retry_number, queue, task_class)
    SELECT c.id, c.scheduled_at, c.priority, 1, 0, c.queue, c.task_class FROM created c
  )
  SELECT c.id FROM created c;

  -- What is due later than the poll of every engine needs no wake-up.
  PERFORM task_engine.wake(soon.class, soon.queue, soon.priority) FROM (
    SELECT a.class, coalesce(a.queue, 'default') AS queue, max(coalesce(a.priority, 0)) AS priority
    FROM unnest($1, $3, $4, $5, $6) AS a(class, scheduled_at, delay, priority, queue)
    WHERE coalesce(a.scheduled_at, asked_at + a.delay, asked_at) < asked_at + interval '15 seconds'
    GROUP BY 1, 2
  ) AS soon;
END $$;

-- The public door for one task.
CREATE FUNCTION task_engine.create_task(
  task_class text,
  task_parameters jsonb DEFAULT '{}',
  scheduled_at timestamptz DEFAULT NULL,
  delay interval DEFAULT NULL,
  priority integer DEFAULT 0,
  queue text DEFAULT 'default',
  context jsonb DEFAULT '{}'
) RETURNS bigint
LANGUAGE sql AS $$
  SELECT task_engine.create_tasks(
    ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[$4], ARRAY[$5], ARRAY[$6], ARRAY[$7])
$$;

-- Attempts in engines' hands. A claim stays while one of its attempts runs, so
-- those that have ended are taken out.
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
  -- What it returned, once it has ended well.
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
    -- By the index of what ended badly, each task once: an operator may have sent
    -- it back to wait, and it may have failed again.
    RETURN QUERY SELECT t.* FROM (
      SELECT DISTINCT e.task_id FROM task_engine.ended_executions e
      WHERE e.ends_task IN ('failed', 'cancelled') AND e.ends_task = wanted AND e.task_id < below
      ORDER BY e.task_id DESC
    ) AS c CROSS JOIN LATERAL (
      SELECT * FROM task_engine.tasks v WHERE v.id = c.task_id AND v.status = wanted
    ) AS t ORDER BY c.task_id DESC LIMIT page_size;
  END IF;
END $$;

-- A plain INSERT into the book's table creates a task whole. Times that a
-- client sends as created_at or updated_at are ignored: only this clock counts.
CREATE FUNCTION task_engine.insert_task() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  created bigint;
BEGIN
  IF NEW.id IS NOT NULL THEN
    RAISE EXCEPTION 'the id of a task is given by the database; leave it out'
      USING ERRCODE = 'generated_always';
  END IF;
  IF NEW.status <> 'waiting' THEN
    RAISE EXCEPTION 'a task begins as waiting, not as %', NEW.status
      USING ERRCODE = 'check_violation';
  END IF;
  created := task_engine.create_task(
    NEW.task_class, coalesce(NEW.task_parameters, '{}'), NEW.scheduled_at, NULL,
    coalesce(NEW.priority, 0), coalesce(NEW.queue, 'default'),
    coalesce(NEW.context, '{}') || jsonb_strip_nulls(jsonb_build_object(
      'correlation_id', NEW.correlation_id, 'parent_id', NEW.parent_id)));
  SELECT * INTO NEW FROM task_engine.tasks t WHERE t.id = created;
  RETURN NEW;
END $$;
CREATE TRIGGER insert_task INSTEAD OF INSERT ON task_engine.tasks
  FOR EACH ROW EXECUTE FUNCTION task_engine.insert_task();
