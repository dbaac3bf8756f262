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

-- The public door for many tasks of which some are unique; those without a key
-- are created as by create_tasks. Arrays as there, and side by side with them:
--
--   unique_keys    null: not unique
--   unique_scopes  which task with the key stands in the way: one that is
--                  'waiting', one that is 'active' (waiting or running; the
--                  default), or one created less than a period ago ('10 minutes')
--   on_conflicts   'keep' it (the default), or, if it waits, 'replace' all of it,
--                  its parameters ('replace_parameters') or its time
--                  ('replace_time')
--
-- Returns a row for each: the task that there is now, and whether it was
-- 'created', 'kept' or 'replaced'.
--
-- Who creates with a key locks, until the end of the transaction and always in
-- this order: the keys, sorted; the tasks that have them; their waiting rows.
-- Each step is a statement with a snapshot of its own, so it sees what those did
-- who had the locks before. Waiting rows are locked also of tasks that are kept:
-- no claim starts them (it passes locked rows over) before the caller's own
-- writes are there to be seen. A task that runs or has ended is not locked; it
-- comes back to wait by a retry only, which is no creation.
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
-- Left alone, the server plans the look at the tasks anew for each call, which
-- costs three times as much as all the rest.
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  asked_at CONSTANT timestamptz := statement_timestamp();
  wish record;
  -- Of each key, in their order: the task that has it (0: none), where that is,
  -- and since when.
  holders bigint[] := '{}';
  statuses task_engine.task_status[] := '{}';
  sinces timestamptz[] := '{}';
  locked bigint;
  seen bigint;
  -- The same of the key that is looked at.
  holder bigint;
  status task_engine.task_status;
  since timestamptz;
  -- Of each wish: what becomes of it, and which task it is. A task that this
  -- call will create has no id yet, and is named by its place, below zero.
  outcomes text[] := array_fill('created'::text, ARRAY[coalesce(cardinality($1), 0)]);
  targets bigint[] := array_fill(NULL::bigint, ARRAY[coalesce(cardinality($1), 0)]);
  created_ids bigint[];
  created integer := 0;
  was record;
BEGIN
  FOR wish IN
    SELECT DISTINCT a.class AS class, a.key AS key
    FROM unnest($1, $8) AS a(class, key) WHERE a.key IS NOT NULL ORDER BY 1, 2
  LOOP
    LOOP
      SELECT u.task_id INTO holder FROM task_engine.unique_tasks u
      WHERE u.task_class = wish.class AND u.unique_key = wish.key FOR UPDATE;
      EXIT WHEN FOUND;
      holder := 0;
      -- Waits for another who creates with this key at the same time.
      INSERT INTO task_engine.unique_tasks (task_class, unique_key, task_id)
      VALUES (wish.class, wish.key, 0) ON CONFLICT DO NOTHING;
      EXIT WHEN FOUND;
    END LOOP;
    holders := holders || holder;
  END LOOP;

  IF 0 <> ANY (holders) THEN
    -- Retries and retention lock tasks first, too.
    PERFORM c.id FROM task_engine.created_tasks c
    WHERE c.id = ANY (holders) ORDER BY c.id FOR UPDATE;

    -- What is locked goes on waiting, so if as many wait in the second statement
    -- as were locked by the first, they are the same. If more do, some have come
    -- back to wait in between. (Never fewer, but a damaged table must not make
    -- this run for ever.)
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

  -- Decides. The second wish for a key sees what the first one did.
  FOR wish IN
    SELECT a.place, coalesce(a.scope, 'active') AS scope, coalesce(a.on_conflict, 'keep') AS answer,
      task_engine.unique_period(coalesce(a.scope, 'active')) AS period,
      dense_rank() OVER (ORDER BY a.class, a.key) AS number,
      a.place = min(a.place) OVER (PARTITION BY a.class, a.key) AS is_first
    FROM unnest($1, $8, $9, $10) WITH ORDINALITY AS a(class, key, scope, on_conflict, place)
    WHERE a.key IS NOT NULL ORDER BY number, a.place
  LOOP
    IF wish.answer NOT IN ('keep', 'replace', 'replace_parameters', 'replace_time') THEN
      RAISE EXCEPTION 'on_conflict is keep, replace, replace_parameters or replace_time; not %',
        wish.answer USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF wish.is_first THEN
      holder := holders[wish.number];
      status := statuses[wish.number];
      since := sinces[wish.number];
    END IF;
    -- No status: there is no such task.
    IF status IS NOT NULL AND (
      CASE wish.scope
        WHEN 'waiting' THEN status = 'waiting'
        WHEN 'active' THEN status IN ('waiting', 'running')
        ELSE asked_at - since < wish.period
      END
    ) THEN
      targets[wish.place] := holder;
      outcomes[wish.place] :=
        CASE WHEN wish.answer = 'keep' OR status <> 'waiting' THEN 'kept' ELSE 'replaced' END;
    ELSE
      holder := -wish.place;
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
      coalesce(a.scheduled_at, asked_at + a.delay, asked_at), asked_at
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, outcomes) WITH ORDINALITY
      AS a(class, parameters, scheduled_at, delay, priority, queue, context, key, outcome, place)
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
  -- with an older snapshot must find it gone, and not the old parameters. What
  -- was asked for anew has all its retries; the number of the attempt goes on.
  FOR wish IN
    SELECT a.*, coalesce(a.scheduled_at, asked_at + a.delay, asked_at) AS due_at,
      a.answer IN ('replace', 'replace_parameters') AS takes_parameters,
      a.answer IN ('replace', 'replace_time') AS takes_time, a.answer = 'replace' AS takes_all
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $10, outcomes, targets) WITH ORDINALITY
      AS a(class, parameters, scheduled_at, delay, priority, queue, context, key, answer, outcome,
        id, place)
    WHERE a.outcome = 'replaced' ORDER BY a.place
  LOOP
    DELETE FROM task_engine.waiting_tasks w WHERE w.task_id = wish.id
    RETURNING w.attempt, w.due_at INTO STRICT was;
    WITH changed AS (
      UPDATE task_engine.created_tasks c SET
        task_parameters = CASE WHEN wish.takes_parameters
          THEN coalesce(wish.parameters, '{}') ELSE c.task_parameters END,
        context = CASE WHEN wish.takes_all
          THEN coalesce(wish.context, '{}') || jsonb_build_object('unique_key', wish.key)
          ELSE c.context END,
        queue = CASE WHEN wish.takes_all THEN coalesce(wish.queue, 'default') ELSE c.queue END,
        priority = CASE WHEN wish.takes_all THEN coalesce(wish.priority, 0) ELSE c.priority END,
        scheduled_at = CASE WHEN wish.takes_time THEN wish.due_at ELSE c.scheduled_at END
      WHERE c.id = wish.id
      RETURNING c.id, c.priority, c.queue, c.task_class
    )
    INSERT INTO task_engine.waiting_tasks
      (task_id, due_at, priority, attempt, retry_number, queue, task_class)
    SELECT c.id, CASE WHEN wish.takes_time THEN wish.due_at ELSE was.due_at END,
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

-- The public door for one unique task: which it is, and whether it was created,
-- kept or replaced.
CREATE FUNCTION task_engine.create_unique_task(
  task_class text,
  unique_key text,
  task_parameters jsonb DEFAULT '{}',
  scheduled_at timestamptz DEFAULT NULL,
  delay interval DEFAULT NULL,
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

-- The public door for one task, now with a key for those who want one. Without,
-- it is the path that it was.
DROP FUNCTION task_engine.create_task(text, jsonb, timestamptz, interval, integer, text, jsonb);
CREATE FUNCTION task_engine.create_task(
  task_class text,
  task_parameters jsonb DEFAULT '{}',
  scheduled_at timestamptz DEFAULT NULL,
  delay interval DEFAULT NULL,
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
