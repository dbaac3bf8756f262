-- Limits: how many attempts run at a time, and how often attempts start. A task without
-- limits has no row here, and its waiting row has no lane key.

-- Limits. `options` apply; `declared` is what engines declare. With neither a class nor a
-- queue, a limit applies to tasks that name it in their context ("limits").
CREATE TABLE task_engine.limits (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE
    CONSTRAINT "a limit has a name of 1 to 200 bytes"
    CHECK (octet_length(name) BETWEEN 1 AND 200),
  task_class text,
  queue text,
  options jsonb NOT NULL,
  declared jsonb,
  set_by_operator boolean NOT NULL,
  changed_at timestamptz NOT NULL,
  CONSTRAINT "a limit applies to a class or to a queue"
    CHECK (task_class IS NULL OR queue IS NULL)
);

-- Grows with every change of a limit, so that a claim notices that it knows old ones.
CREATE TABLE task_engine.limits_version (version bigint NOT NULL);
INSERT INTO task_engine.limits_version VALUES (1);

-- Classes and queues whose tasks are claimed by their limits. Usual claims leave them out.
-- A class is in it, too, if a task of it has named a limit. '' means any. A row stays when the
-- limits are removed, but is not in use: tasks may still wait in lanes of keys.
CREATE TABLE task_engine.limited_targets (
  task_class text NOT NULL,
  queue text NOT NULL,
  in_use boolean NOT NULL DEFAULT true,
  PRIMARY KEY (task_class, queue)
);

-- The state of a key: how many attempts have started (total), and which of them hold it.
-- The newest row (the highest total) counts. A claim deletes the row that it has read and
-- inserts the next one. An attempt that has ended holds nothing: there is no release.
CREATE TABLE task_engine.limit_keys (
  limit_id integer NOT NULL,
  key text COLLATE "C" NOT NULL,
  total bigint NOT NULL,
  written_at timestamptz NOT NULL,
  task_ids bigint[] NOT NULL,
  attempts integer[] NOT NULL,
  PRIMARY KEY (limit_id, key, total)
) WITH (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);

-- Recent starts of keys with a rate, one row for each claim. The attempts up to number
-- `total` had started at `started_until` at the latest.
CREATE TABLE task_engine.limit_starts (
  limit_id integer NOT NULL,
  key text COLLATE "C" NOT NULL,
  total bigint NOT NULL,
  started_until timestamptz NOT NULL,
  PRIMARY KEY (limit_id, key, total)
) WITH (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);

-- Keys that start no attempts before a time.
CREATE TABLE task_engine.closed_keys (
  limit_id integer NOT NULL,
  key text COLLATE "C" NOT NULL,
  closed_until timestamptz NOT NULL,
  reason text NOT NULL
    CONSTRAINT "the reason for closing a key has at most 1000 bytes"
    CHECK (octet_length(reason) <= 1000),
  PRIMARY KEY (limit_id, key)
);

-- A due task with limits waits in a lane of its own: its queue has the prefix U+001F, and
-- its lane key names its limits and their keys: [[3, "acme"], [5, ""]]. Usual claims do not
-- see such rows.
ALTER TABLE task_engine.waiting_tasks ADD COLUMN lane_key text COLLATE "C";
CREATE INDEX waiting_tasks_by_limited_lane
  ON task_engine.waiting_tasks
    (queue COLLATE "C", task_class COLLATE "C", priority, lane_key, due_at, task_id)
  WHERE lane_key IS NOT NULL;

-- The key of a value: a text, a number or a boolean as it is, at most 200 bytes; otherwise a
-- hash. Nothing and null are the empty key.
CREATE FUNCTION task_engine.limit_key(value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN $1 IS NULL OR $1 = 'null' THEN ''
    WHEN jsonb_typeof($1) IN ('object', 'array') OR octet_length($1::text) > 202
    THEN 'hash:' || encode(sha256(convert_to($1::text, 'UTF8')), 'hex')
    ELSE $1 #>> '{}'
  END
$$;

-- The limits of a task with their keys: [[3, "acme"], [5, ""]]. `only_in_order`: only those
-- in order.
CREATE FUNCTION task_engine.task_keys(
  task_class text, queue text, parameters jsonb, context jsonb, only_in_order boolean DEFAULT false
) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT jsonb_agg(
    jsonb_build_array(l.id, task_engine.limit_key(
      coalesce(nullif($4 -> 'limits' -> l.name, 'null'), $3 -> (l.options ->> 'key'))))
    ORDER BY l.id)::text
  FROM task_engine.limits l
  WHERE (l.task_class = $1 OR l.queue = $2
      OR l.task_class IS NULL AND l.queue IS NULL AND $4 -> 'limits' ? l.name)
    AND (NOT $5 OR l.options -> 'in_order' = 'true')
$$;

-- The lane key of a task: its keys. Tasks of a limit in order have one lane for each of its
-- keys, whatever their other keys are, because the order is that of the lane.
CREATE FUNCTION task_engine.lane_key(
  task_class text, queue text, parameters jsonb, context jsonb
) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT coalesce(task_engine.task_keys($1, $2, $3, $4, true), task_engine.task_keys($1, $2, $3, $4), '[]')
$$;

-- Whether any task may have limits; the classes and queues that have some; and the limits. With
-- the rights of the owner: creators need none on limits.
CREATE FUNCTION task_engine.has_limits() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
  SELECT EXISTS (SELECT FROM task_engine.limited_targets t WHERE t.in_use)
$$;
CREATE FUNCTION task_engine.targets_in_use() RETURNS TABLE (task_class text, queue text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
  SELECT t.task_class, t.queue FROM task_engine.limited_targets t WHERE t.in_use
$$;
CREATE FUNCTION task_engine.limits_in_use()
RETURNS TABLE (id integer, name text, task_class text, queue text, key text, in_order boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
  SELECT l.id, l.name, l.task_class, l.queue, l.options ->> 'key',
    coalesce(l.options -> 'in_order' = 'true', false)
  FROM task_engine.limits l ORDER BY l.id
$$;

-- Checks the limits that a new task names, and has its class claimed by limits. With the
-- rights of the owner: creators need none on limits.
CREATE FUNCTION task_engine.check_task_limits() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
  named CONSTANT jsonb := NEW.context -> 'limits';
  unknown text;
BEGIN
  IF (SELECT count(*) FROM jsonb_object_keys(named)) > 3 THEN
    RAISE EXCEPTION 'a task names % limits; at most 3 are possible', (SELECT count(*) FROM jsonb_object_keys(named))
      USING ERRCODE = 'check_violation';
  END IF;
  SELECT n.name INTO unknown FROM jsonb_object_keys(named) AS n(name)
  WHERE NOT EXISTS (
    SELECT FROM task_engine.limits l
    WHERE l.name = n.name AND (l.task_class IS NULL AND l.queue IS NULL
      OR l.task_class = NEW.task_class OR l.queue = NEW.queue))
  LIMIT 1;
  -- An import may contain tasks of limits that were removed.
  IF FOUND AND current_setting('taskengine.import', true) IS DISTINCT FROM 'on' THEN
    RAISE EXCEPTION 'limit % does not exist, or does not apply to this class and queue; declare it in an engine, or add it: task-engine limits set', to_json(unknown)
      USING ERRCODE = 'check_violation';
  END IF;
  -- Usually it is there, and nothing is locked.
  IF NOT EXISTS (
    SELECT FROM task_engine.limited_targets t
    WHERE t.task_class = NEW.task_class AND t.queue = '' AND t.in_use
  ) THEN
    INSERT INTO task_engine.limited_targets VALUES (NEW.task_class, '')
    ON CONFLICT (task_class, queue) DO UPDATE SET in_use = true;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER check_task_limits AFTER INSERT OR UPDATE OF context ON task_engine.created_tasks
  FOR EACH ROW WHEN (jsonb_typeof(NEW.context -> 'limits') = 'object') EXECUTE FUNCTION task_engine.check_task_limits();

-- What is wrong with the options of a limit; null if nothing is.
CREATE FUNCTION task_engine.limit_problem(options jsonb, has_target boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  rate CONSTANT jsonb := options -> 'rate';
  unknown text;
BEGIN
  IF jsonb_typeof(options) IS DISTINCT FROM 'object' THEN
    RETURN 'its options are not an object';
  END IF;
  SELECT o.name INTO unknown FROM jsonb_object_keys(options) AS o(name)
  WHERE o.name NOT IN ('key', 'max', 'rate', 'in_order', 'weights') LIMIT 1;
  IF FOUND THEN
    RETURN format('unknown option %s; options are key, max, rate, in_order and weights', to_json(unknown));
  END IF;
  IF options ? 'max' AND (jsonb_typeof(options -> 'max') <> 'number'
    OR (options ->> 'max')::numeric NOT BETWEEN 1 AND 10000 OR (options ->> 'max')::numeric % 1 <> 0) THEN
    RETURN format('max is a number from 1 to 10000, not %s; to start nothing, pause the queue', options ->> 'max');
  END IF;
  IF options -> 'in_order' = 'true' AND (options ->> 'max')::numeric > 1 THEN
    RETURN format('tasks that run in order run one at a time; omit max or set it to 1, not %s', options ->> 'max');
  END IF;
  IF rate IS NOT NULL AND (jsonb_typeof(rate) <> 'object'
    OR jsonb_typeof(rate -> 'max') IS DISTINCT FROM 'number'
    OR jsonb_typeof(rate -> 'per_ms') IS DISTINCT FROM 'number'
    OR (rate ->> 'max')::numeric NOT BETWEEN 1 AND 1000000
    OR (rate ->> 'per_ms')::numeric NOT BETWEEN 1 AND 31622400000) THEN
    RETURN 'a rate is 1 to 1000000 starts in a window of 1 ms to 366 days, for example {"max": 100, "per_ms": 1000}';
  END IF;
  IF options ? 'key' AND (jsonb_typeof(options -> 'key') <> 'string'
    OR octet_length(options ->> 'key') NOT BETWEEN 1 AND 200) THEN
    RETURN 'a key is the name of a parameter of 1 to 200 bytes';
  END IF;
  IF has_target AND NOT options ?| ARRAY['key', 'max', 'rate'] AND options -> 'in_order' IS DISTINCT FROM 'true' THEN
    RETURN 'it has no effect; set max, rate, in_order or key';
  END IF;
  RETURN NULL;
END $$;

-- Counts the attempts that run already, for a limit that begins to count them. No claim
-- runs meanwhile: the caller has locked the claims.
CREATE FUNCTION task_engine.count_running(limit_id integer) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  WITH running AS (
    SELECT h.task_id, h.attempt, task_engine.limit_key(
      coalesce(nullif(c.context -> 'limits' -> l.name, 'null'), c.task_parameters -> (l.options ->> 'key'))) AS key
    FROM task_engine.limits l
    CROSS JOIN task_engine.held_attempts h
    JOIN task_engine.created_tasks c ON c.id = h.task_id
    WHERE l.id = $1
      AND (c.task_class = l.task_class OR c.queue = l.queue
        OR l.task_class IS NULL AND l.queue IS NULL AND c.context -> 'limits' ? l.name)
  ), before AS (
    DELETE FROM task_engine.limit_keys k WHERE k.limit_id = $1 RETURNING k.key, k.total
  ), keys AS (
    SELECT key, max(total) AS total FROM before GROUP BY key
  )
  INSERT INTO task_engine.limit_keys (limit_id, key, total, written_at, task_ids, attempts)
  SELECT $1, coalesce(r.key, k.key), coalesce(k.total, 0),
    clock_timestamp(), coalesce(r.task_ids, '{}'), coalesce(r.attempts, '{}')
  FROM (
    SELECT key, array_agg(task_id ORDER BY task_id) AS task_ids,
      array_agg(attempt ORDER BY task_id) AS attempts
    FROM running GROUP BY key
  ) AS r
  FULL JOIN keys k ON k.key = r.key;
END $$;

-- Adds or changes a limit, for an operator or for an engine that declares it. Returns
-- 'added', 'changed', 'unchanged' or 'overridden'.
--
-- Locks the claims until the end of the transaction: claims that run have ended when this
-- continues, and later ones see the change. Attempts that run already count.
CREATE FUNCTION task_engine.put_limit(
  name text, task_class text, queue text, options jsonb, by_operator boolean
) RETURNS text
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  problem CONSTANT text := task_engine.limit_problem($4, $2 IS NOT NULL OR $3 IS NOT NULL);
  was task_engine.limits;
  target CONSTANT text := CASE
    WHEN $2 IS NOT NULL THEN format('class %s', to_json($2))
    WHEN $3 IS NOT NULL THEN format('queue %s', to_json($3))
    ELSE 'tasks that name it' END;
  counts boolean;
  limit_id integer;
BEGIN
  IF problem IS NOT NULL THEN
    RAISE EXCEPTION 'limit %: %', to_json($1), problem USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'limit % cannot be set here: running attempts are counted; use a READ COMMITTED transaction', to_json($1)
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  LOCK TABLE task_engine.limits IN SHARE ROW EXCLUSIVE MODE;
  SELECT * INTO was FROM task_engine.limits l WHERE l.name = $1;
  IF was.id IS NOT NULL AND (was.task_class IS DISTINCT FROM $2 OR was.queue IS DISTINCT FROM $3) THEN
    RAISE EXCEPTION 'limit % does not apply to %; clear it first, or choose another name', to_json($1), target
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  IF was.id IS NULL AND ($2 IS NOT NULL OR $3 IS NOT NULL) AND 3 <= (
    SELECT count(*) FROM task_engine.limits l WHERE l.task_class = $2 OR l.queue = $3
  ) THEN
    RAISE EXCEPTION '% has 3 limits; more are not possible', target
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  IF NOT by_operator THEN
    UPDATE task_engine.limits l SET declared = $4 WHERE l.id = was.id AND l.declared IS DISTINCT FROM $4;
    IF was.set_by_operator AND was.options <> $4 THEN
      RETURN 'overridden';
    END IF;
  END IF;
  IF was.options = $4 THEN
    UPDATE task_engine.limits l SET set_by_operator = true
    WHERE l.id = was.id AND by_operator AND NOT l.set_by_operator;
    RETURN 'unchanged';
  END IF;
  -- Before the claims: a transaction that has created the first task of a class that names a
  -- limit may be open.
  IF $2 IS NOT NULL OR $3 IS NOT NULL THEN
    INSERT INTO task_engine.limited_targets VALUES (coalesce($2, ''), coalesce($3, ''))
    ON CONFLICT (task_class, queue) DO UPDATE SET in_use = true;
  ELSE
    -- Tasks that name it may wait already, of classes that have named limits before.
    UPDATE task_engine.limited_targets SET in_use = true WHERE queue = '' AND NOT in_use;
  END IF;
  LOCK TABLE task_engine.claims IN SHARE ROW EXCLUSIVE MODE;
  -- Other keys make it another limit.
  IF was.options ->> 'key' IS DISTINCT FROM $4 ->> 'key' THEN
    DELETE FROM task_engine.limits l WHERE l.id = was.id;
  END IF;
  INSERT INTO task_engine.limits AS l
    (name, task_class, queue, options, declared, set_by_operator, changed_at)
  VALUES ($1, $2, $3, $4, CASE WHEN by_operator THEN was.declared ELSE $4 END, by_operator, clock_timestamp())
  ON CONFLICT (name) DO UPDATE
  SET options = $4, set_by_operator = by_operator OR l.set_by_operator, changed_at = clock_timestamp()
  RETURNING l.id INTO limit_id;
  IF was.options -> 'rate' IS DISTINCT FROM $4 -> 'rate' THEN
    -- A changed rate counts from now on.
    DELETE FROM task_engine.limit_starts s WHERE s.limit_id = was.id;
  END IF;
  counts := $4 ? 'max' OR $4 -> 'in_order' = 'true';
  IF counts AND (limit_id IS DISTINCT FROM was.id
    OR NOT (was.options ? 'max' OR coalesce(was.options -> 'in_order' = 'true', false))) THEN
    PERFORM task_engine.count_running(limit_id);
  END IF;
  IF $2 IS NULL AND $3 IS NULL AND limit_id IS DISTINCT FROM was.id THEN
    -- Tasks that name it may wait in lanes without it: they get new lanes.
    WITH gone AS (
      DELETE FROM task_engine.waiting_tasks w USING task_engine.created_tasks c
      WHERE w.lane_key IS NOT NULL AND c.id = w.task_id AND c.context -> 'limits' ? $1
      RETURNING w.*
    )
    INSERT INTO task_engine.waiting_tasks
      (task_id, due_at, priority, attempt, retry_number, queue, task_class)
    SELECT g.task_id, g.due_at, g.priority, g.attempt, g.retry_number, ltrim(g.queue, chr(31)),
      g.task_class
    FROM gone g;
  END IF;
  UPDATE task_engine.limits_version SET version = version + 1;
  PERFORM pg_notify('task-engine', '');
  RETURN CASE WHEN was.id IS NULL THEN 'added' ELSE 'changed' END;
END $$;

-- Adds or changes a limit. Options: max, key, rate ({"max": 100, "per_ms": 1000, "even":
-- true}), in_order, weights. Every claim that begins after the commit respects it.
CREATE FUNCTION task_engine.set_limit(
  name text, options jsonb, task_class text DEFAULT NULL, queue text DEFAULT NULL
) RETURNS text
LANGUAGE sql AS $$
  SELECT task_engine.put_limit($1, $3, $4, $2, true)
$$;

-- Removes a limit, or what an operator has set if engines declare it. Returns 'removed',
-- 'declared', 'only_declared' or 'not_found'.
CREATE FUNCTION task_engine.clear_limit(name text) RETURNS text
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  was task_engine.limits;
BEGIN
  LOCK TABLE task_engine.limits IN SHARE ROW EXCLUSIVE MODE;
  SELECT * INTO was FROM task_engine.limits l WHERE l.name = $1;
  IF was.id IS NULL THEN
    RETURN 'not_found';
  END IF;
  IF was.declared IS NULL THEN
    DELETE FROM task_engine.limits l WHERE l.id = was.id;
    UPDATE task_engine.limited_targets t SET in_use = false
    WHERE t.in_use AND NOT EXISTS (
      SELECT FROM task_engine.limits l WHERE l.task_class = t.task_class OR l.queue = t.queue
        OR l.task_class IS NULL AND l.queue IS NULL AND t.queue = '');
    UPDATE task_engine.limits_version SET version = version + 1;
    PERFORM pg_notify('task-engine', '');
    RETURN 'removed';
  END IF;
  IF NOT was.set_by_operator THEN
    RETURN 'only_declared';
  END IF;
  UPDATE task_engine.limits l SET set_by_operator = false WHERE l.id = was.id;
  PERFORM task_engine.put_limit(was.name, was.task_class, was.queue, was.declared, false);
  RETURN 'declared';
END $$;

-- Stores the limits that an engine declares, and removes those that engines have declared
-- for its classes and that are not among them. Returns a row for each: 'added', 'changed',
-- 'unchanged', 'overridden' or 'removed'.
CREATE FUNCTION task_engine.declare_limits(
  names text[], task_classes text[], queues text[], options jsonb[], engine_classes text[]
) RETURNS TABLE (name text, outcome text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  one record;
  removed text[] := '{}';
BEGIN
  -- Engines that start together wait here, and not for the rows of each other.
  IF cardinality($1) > 0 OR EXISTS (
    SELECT FROM task_engine.limits l WHERE l.task_class = ANY ($5) AND l.declared IS NOT NULL
  ) THEN
    LOCK TABLE task_engine.limits IN SHARE ROW EXCLUSIVE MODE;
  END IF;
  FOR one IN
    SELECT l.* FROM task_engine.limits l
    WHERE l.task_class = ANY ($5) AND l.declared IS NOT NULL AND l.name <> ALL ($1)
    ORDER BY l.name
  LOOP
    UPDATE task_engine.limits l SET declared = NULL WHERE l.id = one.id;
    IF NOT one.set_by_operator THEN
      PERFORM task_engine.clear_limit(one.name);
    END IF;
    IF NOT one.set_by_operator THEN
      removed := removed || one.name;
    END IF;
  END LOOP;
  FOR one IN
    SELECT a.* FROM unnest($1, $2, $3, $4) WITH ORDINALITY
      AS a(name, task_class, queue, options, place) ORDER BY a.place
  LOOP
    name := one.name;
    outcome := task_engine.put_limit(one.name, one.task_class, one.queue, one.options, false);
    RETURN NEXT;
  END LOOP;
  RETURN QUERY SELECT r.name, 'removed' FROM unnest(removed) AS r(name);
END $$;

-- Removes up to `most` keys that have not been in use for an hour, and everything about
-- removed limits. Returns how many rows.
CREATE FUNCTION task_engine.prune_limits(most bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  removed bigint;
  more bigint;
BEGIN
  WITH unused AS MATERIALIZED (
    SELECT k.ctid AS place, k.limit_id, k.key, k.total
    FROM task_engine.limit_keys k
    LEFT JOIN task_engine.limits l ON l.id = k.limit_id
    WHERE l.id IS NULL
      OR k.written_at < clock_timestamp() - interval '1 hour'
          - coalesce((l.options -> 'rate' ->> 'per_ms')::double precision, 0) * interval '1 millisecond'
        AND NOT EXISTS (
          SELECT FROM unnest(k.task_ids, k.attempts) AS h(task_id, attempt)
          WHERE (SELECT e.task_id FROM task_engine.ended_executions e
                 WHERE e.task_id = h.task_id AND e.attempt = h.attempt) IS NULL
            AND (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = h.task_id) IS NOT NULL)
        AND NOT coalesce(l.options -> 'in_order' = 'true' AND NOT task_engine.has_ended(k.task_ids[1]), false)
    LIMIT $1
    FOR UPDATE OF k SKIP LOCKED
  ), starts AS (
    DELETE FROM task_engine.limit_starts s USING unused u
    WHERE s.limit_id = u.limit_id AND s.key = u.key AND s.total <= u.total
  ), keys AS (
    DELETE FROM task_engine.limit_keys k WHERE k.ctid = ANY (ARRAY(SELECT place FROM unused))
    RETURNING 1
  )
  SELECT count(*) INTO removed FROM keys;

  DELETE FROM task_engine.closed_keys c
  WHERE c.closed_until < clock_timestamp() - interval '1 hour'
    OR NOT EXISTS (SELECT FROM task_engine.limits l WHERE l.id = c.limit_id);
  GET DIAGNOSTICS more = ROW_COUNT;
  removed := removed + more;

  RETURN removed;
END $$;

-- As in 0002, with one difference: due tasks with limits wait in the lanes of their keys from
-- the beginning, so that no claim has to move them. Tasks of a limit in order are moved: the
-- order of moves is that of their times.
CREATE OR REPLACE FUNCTION task_engine.create_tasks(
  task_classes text[],
  task_parameters jsonb[] DEFAULT NULL,
  scheduled_ats timestamptz[] DEFAULT NULL,
  delays interval[] DEFAULT NULL,
  priorities integer[] DEFAULT NULL,
  queues text[] DEFAULT NULL,
  contexts jsonb[] DEFAULT NULL
) RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  -- Not the transaction's time: "in ten minutes" counts from the call.
  asked_at CONSTANT timestamptz := statement_timestamp();
BEGIN
  IF NOT task_engine.has_limits() THEN
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
  ELSE
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
    ), given AS (
      -- The ids follow the places. Creators may not read parameters that are stored.
      SELECT c.*, a.parameters, coalesce(a.context, '{}') AS context
      FROM (SELECT r.*, row_number() OVER (ORDER BY r.id) AS place FROM created r) AS c
      JOIN unnest($1, $2, $7) WITH ORDINALITY AS a(class, parameters, context, place) USING (place)
    ), targets AS MATERIALIZED (
      SELECT t.task_class, t.queue FROM task_engine.targets_in_use() t
    ), limits AS MATERIALIZED (
      SELECT l.* FROM task_engine.limits_in_use() l
    ), placed AS (
      SELECT c.id, c.scheduled_at, c.priority, c.queue, c.task_class,
        CASE WHEN c.scheduled_at <= asked_at
          AND EXISTS (
            SELECT FROM targets t WHERE t.task_class = c.task_class AND t.queue = ''
              OR t.task_class = '' AND t.queue = c.queue)
          AND NOT EXISTS (
            SELECT FROM limits l WHERE l.in_order AND (l.task_class = c.task_class
              OR l.queue = c.queue
              OR l.task_class IS NULL AND l.queue IS NULL AND c.context -> 'limits' ? l.name))
        THEN coalesce((
          SELECT jsonb_agg(jsonb_build_array(l.id, task_engine.limit_key(
            coalesce(nullif(c.context -> 'limits' -> l.name, 'null'), c.parameters -> l.key))))::text
          FROM limits l
          WHERE l.task_class = c.task_class OR l.queue = c.queue
            OR l.task_class IS NULL AND l.queue IS NULL AND c.context -> 'limits' ? l.name
        ), '[]') END AS lane_key
      FROM given c
    ), queued AS (
      INSERT INTO task_engine.waiting_tasks
        (task_id, due_at, priority, attempt, retry_number, queue, task_class, lane_key)
      SELECT p.id, p.scheduled_at, p.priority, 1, 0,
        CASE WHEN p.lane_key IS NULL THEN p.queue ELSE chr(31) || p.queue END, p.task_class,
        p.lane_key
      FROM placed p
    )
    SELECT c.id FROM created c;
  END IF;

  -- What is due later than the poll of every engine needs no wake-up.
  PERFORM task_engine.wake(soon.class, soon.queue, soon.priority) FROM (
    SELECT a.class, coalesce(a.queue, 'default') AS queue, max(coalesce(a.priority, 0)) AS priority
    FROM unnest($1, $3, $4, $5, $6) AS a(class, scheduled_at, after, priority, queue)
    WHERE coalesce(a.scheduled_at, asked_at + a.after, asked_at) < asked_at + interval '15 seconds'
    GROUP BY 1, 2
  ) AS soon;
END $$;
