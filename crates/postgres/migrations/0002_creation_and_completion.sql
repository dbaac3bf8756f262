-- How tasks are created and completed: every creation path calls create_tasks or
-- create_unique_tasks.

-- Notifies engines, if a claimer of this queue, class and priority (the highest of the
-- created tasks; null: any) is idle. A notification locks the whole database from
-- before the commit until after it, so needless ones cost producers much.
--
-- There is no race: this runs after the caller has locked waiting_tasks (as every
-- INSERT does, until its commit), and reads with a snapshot of its own (VOLATILE, in
-- READ COMMITTED; otherwise it always notifies). A claimer registers as idle, reads which
-- transactions hold that lock, and scans for work once more. While one of them is open, it
-- scans again soon. So either the registration is seen here, or the new task is seen there.
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
      SELECT FROM task_engine.idle_claimers s
      WHERE (wake.queue IS NULL OR wake.queue = ANY (s.queues)
          AND (s.classes IS NULL OR wake.task_class = ANY (s.classes)))
        AND (wake.priority IS NULL OR wake.priority >= s.lowest_priority))
  THEN
    RETURN false;
  END IF;
  PERFORM pg_notify('task-engine', task_class);
  RETURN true;
END $$;

-- Creates many tasks. Arrays are parallel; a missing array or a null means the
-- default. The ids are in the order of the arrays.
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
      coalesce(a.scheduled_at, asked_at + a.after, asked_at), asked_at
    FROM unnest($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY
      AS a(class, parameters, scheduled_at, after, priority, queue, context, place)
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
    FROM unnest($1, $3, $4, $5, $6) AS a(class, scheduled_at, after, priority, queue)
    WHERE coalesce(a.scheduled_at, asked_at + a.after, asked_at) < asked_at + interval '15 seconds'
    GROUP BY 1, 2
  ) AS soon;
END $$;

-- The period of a scope that is neither waiting nor active.
CREATE FUNCTION task_engine.unique_period(unique_scope text) RETURNS interval
LANGUAGE plpgsql STABLE AS $$
DECLARE
  period interval;
BEGIN
  IF $1 IN ('waiting', 'active') THEN
    RETURN NULL;
  END IF;
  BEGIN
    period := $1::interval;
  EXCEPTION WHEN data_exception THEN
    period := NULL;
  END;
  IF period IS NULL OR period <= interval '0' THEN
    RAISE EXCEPTION 'a unique_scope is waiting, active, or a period like 10 minutes; not %', $1
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  RETURN period;
END $$;

-- Creates many tasks of which some are unique; those without a key are created as by
-- create_tasks. The arrays are the same, and parallel to them:
--
--   unique_keys    null: not unique
--   unique_scopes  which task with the key conflicts: one that is
--                  'waiting', one that is 'active' (waiting or running; the
--                  default), or one created less than a period ago ('10 minutes')
--   on_conflicts   'keep' it (the default), or, if it waits, 'replace' all of it,
--                  its parameters ('replace_parameters') or its time
--                  ('replace_time')
--
-- Returns a row for each: the task that there is now, and whether it was
-- 'created', 'kept' or 'replaced'.
--
-- Creation with a key locks, until the end of the transaction and always in this
-- order: the keys, sorted; the tasks that have them; their waiting rows. Each step is
-- a statement with a snapshot of its own, so it sees the writes of earlier holders of
-- the locks. Waiting rows of kept tasks are locked, too: no claim starts them (it
-- skips locked rows) before the caller's own writes are visible. A task that runs or has ended is not locked; it
-- can wait again only after a retry, which is not a creation.
CREATE FUNCTION task_engine.create_unique_tasks(
  task_classes text[],
  task_parameters jsonb[] DEFAULT NULL,
  scheduled_ats timestamptz[] DEFAULT NULL,
  delays interval[] DEFAULT NULL,
  priorities integer[] DEFAULT NULL,
  queues text[] DEFAULT NULL,
  contexts jsonb[] DEFAULT NULL,
  unique_keys text[] DEFAULT NULL,
  unique_scopes text[] DEFAULT NULL,
  on_conflicts text[] DEFAULT NULL
) RETURNS TABLE (task_id bigint, outcome text)
LANGUAGE plpgsql
-- Otherwise the server plans the query of the tasks for each call, which costs three
-- times as much as everything else.
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  asked_at CONSTANT timestamptz := statement_timestamp();
  request record;
  -- Of each key, in their order: the task that has it (0: none), where that is,
  -- and since when.
  holders bigint[] := '{}';
  statuses task_engine.task_status[] := '{}';
  sinces timestamptz[] := '{}';
  locked bigint;
  seen bigint;
  -- The same of the current key.
  holder bigint;
  status task_engine.task_status;
  since timestamptz;
  -- Of each request: its outcome, and its task. A task that this call will create has
  -- no id yet, and is named by its position, below zero.
  outcomes text[] := array_fill('created'::text, ARRAY[coalesce(cardinality($1), 0)]);
  targets bigint[] := array_fill(NULL::bigint, ARRAY[coalesce(cardinality($1), 0)]);
  created_ids bigint[];
  created integer := 0;
  was record;
BEGIN
  FOR request IN
    SELECT DISTINCT a.class AS class, a.key AS key
    FROM unnest($1, $8) AS a(class, key) WHERE a.key IS NOT NULL ORDER BY 1, 2
  LOOP
    LOOP
      SELECT u.task_id INTO holder FROM task_engine.unique_tasks u
      WHERE u.task_class = request.class AND u.unique_key = request.key FOR UPDATE;
      EXIT WHEN FOUND;
      holder := 0;
      -- Waits for another creation with this key at the same time.
      INSERT INTO task_engine.unique_tasks (task_class, unique_key, task_id)
      VALUES (request.class, request.key, 0) ON CONFLICT DO NOTHING;
      EXIT WHEN FOUND;
    END LOOP;
    holders := holders || holder;
  END LOOP;

  IF 0 <> ANY (holders) THEN
    -- Retries and retention lock tasks first, too.
    PERFORM c.id FROM task_engine.created_tasks c
    WHERE c.id = ANY (holders) ORDER BY c.id FOR UPDATE;

    -- Locked rows stay, so if as many wait in the second statement as were locked by
    -- the first, they are the same. If more do, some were requeued in between. (Never
    -- fewer, but a damaged table must not make this run for ever.)
    LOOP
      SELECT count(*) INTO locked FROM (
        SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = ANY (holders)
        ORDER BY w.task_id FOR UPDATE
      ) AS w;
      SELECT array_agg(t.status ORDER BY h.place), array_agg(t.created_at ORDER BY h.place),
        count(DISTINCT t.id) FILTER (WHERE t.status = 'waiting')
      INTO statuses, sinces, seen
      FROM unnest(holders) WITH ORDINALITY AS h(id, place)
      LEFT JOIN task_engine.tasks t ON t.id = h.id;
      EXIT WHEN seen <= locked;
    END LOOP;
  END IF;

  -- Decides. The second request for a key sees the outcome of the first.
  FOR request IN
    SELECT a.place, coalesce(a.scope, 'active') AS scope, coalesce(a.on_conflict, 'keep') AS answer,
      task_engine.unique_period(coalesce(a.scope, 'active')) AS period,
      dense_rank() OVER (ORDER BY a.class, a.key) AS number,
      a.place = min(a.place) OVER (PARTITION BY a.class, a.key) AS is_first
    FROM unnest($1, $8, $9, $10) WITH ORDINALITY AS a(class, key, scope, on_conflict, place)
    WHERE a.key IS NOT NULL ORDER BY number, a.place
  LOOP
    IF request.answer NOT IN ('keep', 'replace', 'replace_parameters', 'replace_time') THEN
      RAISE EXCEPTION 'on_conflict is keep, replace, replace_parameters or replace_time; not %',
        request.answer USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF request.is_first THEN
      holder := holders[request.number];
      status := statuses[request.number];
      since := sinces[request.number];
    END IF;
    -- No status: there is no such task.
    IF status IS NOT NULL AND (
      CASE request.scope
        WHEN 'waiting' THEN status = 'waiting'
        WHEN 'active' THEN status IN ('waiting', 'running')
        ELSE asked_at - since < request.period
      END
    ) THEN
      targets[request.place] := holder;
      outcomes[request.place] :=
        CASE WHEN request.answer = 'keep' OR status <> 'waiting' THEN 'kept' ELSE 'replaced' END;
    ELSE
      holder := -request.place;
      status := 'waiting';
      since := asked_at;
    END IF;
  END LOOP;

  WITH created AS (
    INSERT INTO task_engine.created_tasks
      (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
    SELECT
      a.class, coalesce(a.parameters, '{}'),
      coalesce(a.context, '{}') || CASE WHEN a.key IS NULL THEN '{}'
        ELSE jsonb_build_object('unique_key', a.key) END,
      coalesce(a.queue, 'default'), coalesce(a.priority, 0),
      coalesce(a.scheduled_at, asked_at + a.after, asked_at), asked_at
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, outcomes) WITH ORDINALITY
      AS a(class, parameters, scheduled_at, after, priority, queue, context, key, outcome, place)
    -- No outcome: an array is longer than that of the classes, and the null is refused.
    WHERE coalesce(a.outcome, 'created') = 'created'
    ORDER BY a.place
    RETURNING id, task_class, queue, priority, scheduled_at
  ), queued AS (
    INSERT INTO task_engine.waiting_tasks
      (task_id, due_at, priority, attempt, retry_number, queue, task_class)
    SELECT c.id, c.scheduled_at, c.priority, 1, 0, c.queue, c.task_class FROM created c
  )
  SELECT array_agg(c.id ORDER BY c.id) INTO created_ids FROM created c;

  FOR place IN 1 .. cardinality(outcomes) LOOP
    IF outcomes[place] = 'created' THEN
      created := created + 1;
      targets[place] := created_ids[created];
    ELSIF targets[place] < 0 THEN
      targets[place] := targets[-targets[place]];
    END IF;
  END LOOP;

  UPDATE task_engine.unique_tasks u SET task_id = newest.id
  FROM (
    SELECT a.class, a.key, max(a.id) AS id
    FROM unnest($1, $8, outcomes, targets) AS a(class, key, outcome, id)
    WHERE a.key IS NOT NULL AND a.outcome = 'created' GROUP BY a.class, a.key
  ) AS newest
  WHERE u.task_class = newest.class AND u.unique_key = newest.key;

  -- A waiting row is replaced, never updated, also if its time stays: a claim
  -- with an older snapshot must find it gone, and not the old parameters. A
  -- replaced task has all its retries; its attempt numbers continue.
  FOR request IN
    SELECT a.*, coalesce(a.scheduled_at, asked_at + a.after, asked_at) AS due_at,
      a.answer IN ('replace', 'replace_parameters') AS takes_parameters,
      a.answer IN ('replace', 'replace_time') AS takes_time, a.answer = 'replace' AS takes_all
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $10, outcomes, targets) WITH ORDINALITY
      AS a(class, parameters, scheduled_at, after, priority, queue, context, key, answer, outcome,
        id, place)
    WHERE a.outcome = 'replaced' ORDER BY a.place
  LOOP
    DELETE FROM task_engine.waiting_tasks w WHERE w.task_id = request.id
    RETURNING w.attempt, w.due_at INTO STRICT was;
    WITH changed AS (
      UPDATE task_engine.created_tasks c SET
        task_parameters = CASE WHEN request.takes_parameters
          THEN coalesce(request.parameters, '{}') ELSE c.task_parameters END,
        context = CASE WHEN request.takes_all
          THEN coalesce(request.context, '{}') || jsonb_build_object('unique_key', request.key)
          ELSE c.context END,
        queue = CASE WHEN request.takes_all THEN coalesce(request.queue, 'default') ELSE c.queue END,
        priority = CASE WHEN request.takes_all THEN coalesce(request.priority, 0) ELSE c.priority END,
        scheduled_at = CASE WHEN request.takes_time THEN request.due_at ELSE c.scheduled_at END
      WHERE c.id = request.id
      RETURNING c.id, c.priority, c.queue, c.task_class
    )
    INSERT INTO task_engine.waiting_tasks
      (task_id, due_at, priority, attempt, retry_number, queue, task_class)
    SELECT c.id, CASE WHEN request.takes_time THEN request.due_at ELSE was.due_at END,
      c.priority, was.attempt, 0, c.queue, c.task_class
    FROM changed c;
  END LOOP;

  PERFORM task_engine.wake(soon.task_class, soon.queue, soon.priority) FROM (
    SELECT DISTINCT w.task_class, w.queue, w.priority FROM task_engine.waiting_tasks w
    WHERE w.due_at < asked_at + interval '15 seconds' AND w.task_id = ANY (ARRAY(
      SELECT a.id FROM unnest(targets, outcomes) AS a(id, outcome) WHERE a.outcome <> 'kept'))
  ) AS soon;

  RETURN QUERY SELECT a.id, a.outcome
  FROM unnest(targets, outcomes) WITH ORDINALITY AS a(id, outcome, place) ORDER BY a.place;
END $$;

-- Creates one unique task: returns its id, and whether it was created, kept or
-- replaced.
CREATE FUNCTION task_engine.create_unique_task(
  task_class text,
  unique_key text,
  task_parameters jsonb DEFAULT '{}',
  scheduled_at timestamptz DEFAULT NULL,
  after interval DEFAULT NULL,
  priority integer DEFAULT 0,
  queue text DEFAULT 'default',
  context jsonb DEFAULT '{}',
  unique_scope text DEFAULT 'active',
  on_conflict text DEFAULT 'keep'
) RETURNS TABLE (task_id bigint, outcome text)
LANGUAGE sql AS $$
  SELECT * FROM task_engine.create_unique_tasks(
    ARRAY[$1], ARRAY[$3], ARRAY[$4], ARRAY[$5], ARRAY[$6], ARRAY[$7], ARRAY[$8],
    ARRAY[$2], ARRAY[$9], ARRAY[$10])
$$;

-- Creates one task. Without a key it calls create_tasks.
CREATE FUNCTION task_engine.create_task(
  task_class text,
  task_parameters jsonb DEFAULT '{}',
  scheduled_at timestamptz DEFAULT NULL,
  after interval DEFAULT NULL,
  priority integer DEFAULT 0,
  queue text DEFAULT 'default',
  context jsonb DEFAULT '{}',
  unique_key text DEFAULT NULL,
  unique_scope text DEFAULT 'active',
  on_conflict text DEFAULT 'keep'
) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
  IF $8 IS NULL THEN
    RETURN (SELECT created FROM task_engine.create_tasks(
      ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[$4], ARRAY[$5], ARRAY[$6], ARRAY[$7]) AS created);
  END IF;
  RETURN (SELECT u.task_id FROM task_engine.create_unique_task(
    $1, $8, $2, $3, $4, $5, $6, $7, $9, $10) AS u);
END $$;

-- An INSERT into the book's table creates a task. Times that a
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

-- An attempt completes its task in a transaction of the application's own: what
-- the task did and that it is done commit together, or neither does.
--
-- The fence is the key of ended_executions, as for all endings. From here until the end
-- of the caller's transaction no other transaction can end this attempt. If one has
-- ended it before, this raises TE001, and the caller's transaction is aborted.
--
-- First the row, then a check of the claim: recovery deletes the claim of a reclaimed
-- attempt. Retention may have removed the row that would conflict, so the row alone is
-- not enough; and a check before the row could be out of date by then. A transaction
-- with one snapshot cannot check again: there the lock fails if the claim is gone
-- (40001). It blocks no other transaction, because the claim stays until the attempt
-- ends.
--
-- Waits at most 10 s for another transaction that is ending this attempt.
CREATE FUNCTION task_engine.complete_attempt(
  task_id bigint,
  attempt integer,
  claim_id bigint,
  result jsonb DEFAULT 'null',
  worker integer DEFAULT NULL,
  lasted interval DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '10s'
AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO task_engine.ended_executions
    (task_id, attempt, retry_number, claim_id, instance_id, worker, started_at, stopped_at,
     ends_task, result)
  SELECT h.task_id, h.attempt, h.retry_number, k.id, k.instance_id, $5,
    coalesce(clock.now - $6, k.claimed_at), clock.now, 'stopped', coalesce($4, 'null')
  FROM task_engine.claims k
  CROSS JOIN LATERAL unnest(k.task_ids, k.attempts, k.retry_numbers)
    AS h(task_id, attempt, retry_number)
  CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
  WHERE k.id = $3 AND h.task_id = $1 AND h.attempt = $2
  ON CONFLICT (task_id, attempt) DO NOTHING;
  IF FOUND THEN
    IF current_setting('transaction_isolation') = 'read committed' THEN
      PERFORM FROM task_engine.claims k WHERE k.id = $3;
    ELSE
      PERFORM FROM task_engine.claims k WHERE k.id = $3 FOR KEY SHARE;
    END IF;
  END IF;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'task %, attempt % has ended, or is not held under claim %', $1, $2, $3
      USING ERRCODE = 'TE001', HINT = 'Roll back: nothing of this attempt counts.';
  END IF;
END $$;
