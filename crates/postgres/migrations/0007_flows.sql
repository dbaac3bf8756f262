-- Flows: tasks that depend on others. A task whose dependencies have not ended is blocked: it
-- waits in a queue with the prefix U+001E, which no claim reads, and has a row in
-- suspended_tasks. A task that uses none of this has no row here.

-- What a task depends on has a condition; the children of durable calls have none.
ALTER TABLE task_engine.task_dependencies ADD COLUMN condition text
  CONSTRAINT "a condition is success, end or failure"
  CHECK (condition IN ('success', 'end', 'failure'));

-- A blocked task looks at one task that it depends on, the lowest that has not ended; those
-- below have ended as it needs. Not in the column of children: engines of the version before
-- would resume it, whatever the conditions are.
ALTER TABLE task_engine.suspended_tasks
  ADD COLUMN blocked_on bigint,
  -- Tasks that it depends on and that ran already when it was created: their engines do not
  -- know that others wait for them. Every heartbeat looks at them.
  ADD COLUMN late_parents bigint[];
CREATE INDEX suspended_tasks_by_blocked
  ON task_engine.suspended_tasks (blocked_on) WHERE blocked_on IS NOT NULL;
CREATE INDEX suspended_tasks_late
  ON task_engine.suspended_tasks (task_id) WHERE late_parents IS NOT NULL;

-- Flows that were created as such, for lists. Insert only.
CREATE TABLE task_engine.flows (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  correlation_id text NOT NULL UNIQUE
    CONSTRAINT "a flow has a correlation id of 1 to 200 bytes"
    CHECK (octet_length(correlation_id) BETWEEN 1 AND 200),
  name text
    CONSTRAINT "a flow has a name of 1 to 200 bytes"
    CHECK (octet_length(name) BETWEEN 1 AND 200),
  created_at timestamptz NOT NULL
    CONSTRAINT "a flow is created before the year 9999"
    CHECK (isfinite(created_at) AND created_at < '9999-01-01Z')
);

-- Ended tasks that were retried, and that others depend on: the end by this attempt no longer
-- counts for them. Insert only.
CREATE TABLE task_engine.reopened_tasks (
  task_id bigint NOT NULL,
  attempt integer NOT NULL,
  PRIMARY KEY (task_id, attempt)
);

-- As in 0001, with is_blocked.
CREATE OR REPLACE VIEW task_engine.tasks AS
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
    THEN (c.context->>'parent_id')::bigint END AS parent_id,
  -- Whether it waits for tasks that it depends on.
  coalesce(starts_with(w.queue, chr(30)), false) AS is_blocked
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

-- How a task has ended, for those that depend on it: 'open', its status, or 'removed'. The functions below write this out where they read many.
CREATE FUNCTION task_engine.dependency_end(task_id bigint) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  -- Not SQL, which would be planned for every statement that calls it.
  RETURN coalesce(
    (SELECT CASE
       WHEN e.ends_task IS NULL THEN 'open'
       WHEN (SELECT r.attempt FROM task_engine.reopened_tasks r
             WHERE r.task_id = $1 AND r.attempt = e.attempt) IS NOT NULL THEN 'open'
       ELSE e.ends_task::text END
     FROM task_engine.ended_executions e
     WHERE e.task_id = $1 ORDER BY e.attempt DESC LIMIT 1),
    CASE WHEN (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = $1) IS NULL
      THEN 'removed' ELSE 'open' END);
END $$;

-- The error of a task that is cancelled because a task that it depends on did not succeed.
CREATE FUNCTION task_engine.dependency_error(task_id bigint, ended text) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN jsonb_build_object(
    'exception', 'DependencyFailed',
    'message', format('task %s%s %s', $1,
      (SELECT ' (' || (c.context ->> 'flow_task') || ')' FROM task_engine.created_tasks c
       WHERE c.id = $1 AND jsonb_typeof(c.context -> 'flow_task') = 'string'),
      CASE $2 WHEN 'failed' THEN 'failed' WHEN 'removed' THEN 'was removed' ELSE 'was cancelled' END),
    'backtrace', '[]'::jsonb);
END $$;

-- Cancels blocked tasks, whose suspended rows are locked. A waiting row that another
-- transaction has locked is left to a heartbeat. Returns those that it has cancelled.
CREATE FUNCTION task_engine.cancel_dependents(ids bigint[], errors jsonb[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  cancelled bigint[];
BEGIN
  WITH free AS MATERIALIZED (
    SELECT w.task_id, w.attempt, w.retry_number, d.error
    FROM unnest($1, $2) AS d(id, error)
    -- Not ordered: the order of the key would be a reason to read all of it.
    JOIN task_engine.waiting_tasks w ON w.task_id = d.id AND left(w.queue, 1) = chr(30)
    FOR UPDATE OF w SKIP LOCKED
  ), ended AS (
    INSERT INTO task_engine.ended_executions
      (task_id, attempt, retry_number, stopped_at, ends_task, error)
    SELECT f.task_id, f.attempt, f.retry_number, clock_timestamp(), 'cancelled', f.error FROM free f
  ), gone AS (
    DELETE FROM task_engine.waiting_tasks WHERE task_id = ANY (ARRAY(SELECT f.task_id FROM free f))
  ), freed AS (
    DELETE FROM task_engine.suspended_tasks WHERE task_id = ANY (ARRAY(SELECT f.task_id FROM free f))
  )
  SELECT ARRAY(SELECT f.task_id FROM free f) INTO cancelled;
  RETURN cancelled;
END $$;

-- Decides about blocked tasks: those that depend on these ended tasks, and these dependents
-- themselves. Each starts, is cancelled, or waits for another task; what depends on the
-- cancelled ones is decided, too. Call it after the ends are committed. Returns how many
-- started, and the tasks that others wait for now: ask again about them after the commit. Their
-- ends may have been committed meanwhile, by an engine that saw no watch yet.
--
-- A dependent looks at the lowest task that has not ended, so that the end of one task reads
-- one row for each that looks at it, and a task with n dependencies reads n in all. Only an end
-- without success is looked for by the dependencies: it cancels at once what needs a success.
--
-- Locks the suspended rows, and decides in the statements after that: with one, the snapshot
-- could be older than the lock. A row that another session has locked is left to it, which
-- asks again about what it waits for then; but not after an end without success, which that
-- session might not look at.
CREATE FUNCTION task_engine.resolve_dependents(
  ended bigint[], dependents bigint[] DEFAULT NULL, OUT resumed bigint, OUT watching bigint[]
)
LANGUAGE plpgsql
-- By keys, in their order, whatever the statistics say: tables may have been empty a moment ago.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  looked_at bigint[] := $1;
  given bigint[] := $2;
  found bigint[];
  cancelled bigint[];
  decided record;
  started bigint;
BEGIN
  resumed := 0;
  watching := '{}';
  LOOP
    cancelled := '{}';
    -- Only those that have ended. The locks below would make the session that ends another one
    -- skip the row. dependency_end, written out.
    SELECT coalesce(array_agg(p.id) FILTER (WHERE n.ended <> ''), '{}') AS ended,
      coalesce(array_agg(p.id) FILTER (WHERE n.ended IN ('failed', 'cancelled')), '{}') AS unsuccessful
    INTO decided
    FROM unnest(looked_at) AS p(id)
    CROSS JOIN LATERAL (
      SELECT coalesce(
        (SELECT CASE
           WHEN e.ends_task IS NULL THEN ''
           WHEN (SELECT r.attempt FROM task_engine.reopened_tasks r
                 WHERE r.task_id = p.id AND r.attempt = e.attempt) IS NOT NULL THEN ''
           ELSE e.ends_task::text END
         FROM task_engine.ended_executions e
         WHERE e.task_id = p.id ORDER BY e.attempt DESC LIMIT 1),
        CASE WHEN (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = p.id) IS NULL
          THEN 'removed' ELSE '' END) AS ended
      OFFSET 0
    ) AS n;
    looked_at := decided.ended;
    -- What needs a success.
    found := given;
    IF cardinality(decided.unsuccessful) > 0 THEN
      found := found || ARRAY(
        SELECT s.task_id
        FROM unnest(decided.unsuccessful) AS p(id)
        JOIN task_engine.task_dependencies d ON d.depends_on = p.id AND d.condition = 'success'
        JOIN task_engine.suspended_tasks s ON s.task_id = d.task_id AND s.blocked_on IS NOT NULL);
    END IF;
    IF cardinality(found) > 0 THEN
      found := ARRAY(
        SELECT s.task_id FROM task_engine.suspended_tasks s
        WHERE s.task_id = ANY (found) AND s.blocked_on IS NOT NULL
        ORDER BY s.task_id FOR UPDATE);
      SELECT array_agg(s.task_id) AS ids,
        array_agg(task_engine.dependency_error(f.depends_on, f.ended)) AS errors
      INTO decided
      FROM task_engine.suspended_tasks s
      CROSS JOIN LATERAL (
        SELECT d.depends_on, n.ended
        FROM task_engine.task_dependencies d
        CROSS JOIN LATERAL (
          -- dependency_end, written out: a call for each of thousands would take longer.
          SELECT coalesce(
            (SELECT CASE
               WHEN e.ends_task IN ('failed', 'cancelled')
                 AND (SELECT r.attempt FROM task_engine.reopened_tasks r
                      WHERE r.task_id = d.depends_on AND r.attempt = e.attempt) IS NULL
               THEN e.ends_task::text ELSE '' END
             FROM task_engine.ended_executions e
             WHERE e.task_id = d.depends_on ORDER BY e.attempt DESC LIMIT 1),
            CASE WHEN (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = d.depends_on) IS NULL
              THEN 'removed' ELSE '' END) AS ended
          -- Once for each.
          OFFSET 0
        ) AS n
        WHERE d.task_id = s.task_id AND d.condition = 'success' AND n.ended <> ''
        ORDER BY d.depends_on LIMIT 1
      ) AS f
      WHERE s.task_id = ANY (found);
      IF decided.ids IS NOT NULL THEN
        cancelled := task_engine.cancel_dependents(decided.ids, decided.errors);
      END IF;
    END IF;

    -- What looks at one of them.
    -- Without a LIMIT: with some statistics it would be a reason to read the whole table.
    found := ARRAY(
      SELECT s.task_id FROM task_engine.suspended_tasks s WHERE s.blocked_on = ANY (looked_at));
    IF cardinality(found) > 1000 THEN
      -- The others after the commit: workers begin with these meanwhile.
      found := found[:1000];
      watching := watching || looked_at;
    END IF;
    found := found || given;
    IF cardinality(found) > 0 THEN
      found := ARRAY(
        SELECT s.task_id FROM task_engine.suspended_tasks s
        WHERE s.task_id = ANY (found) AND s.blocked_on IS NOT NULL
        ORDER BY s.task_id FOR UPDATE SKIP LOCKED);
      SELECT
        array_agg(f.task_id) FILTER (WHERE f.waits AND f.next IS NULL AND f.needed) AS started,
        array_agg(f.task_id) FILTER (WHERE f.waits AND (f.ended <> '' OR f.next IS NULL AND NOT f.needed)) AS ids,
        array_agg(CASE
          WHEN f.next IS NOT NULL THEN task_engine.dependency_error(f.next, f.ended)
          ELSE '{"exception": "NotNeeded", "message": "all tasks that it depends on succeeded", "backtrace": []}'
        END) FILTER (WHERE f.waits AND (f.ended <> '' OR f.next IS NULL AND NOT f.needed)) AS errors,
        -- Also one that stays: its lock may have made another session skip it.
        array_agg(f.task_id) FILTER (WHERE f.waits AND f.ended = '') AS moved,
        array_agg(f.next) FILTER (WHERE f.waits AND f.ended = '') AS moved_to,
        array_agg(f.task_id) FILTER (WHERE NOT f.waits) AS stale
      INTO decided
      FROM (
        SELECT s.task_id, s.blocked_on, w.task_id IS NOT NULL AS waits,
          next.depends_on AS next, next.ended,
          -- Read once, by the last end that it waits for.
          CASE WHEN next.depends_on IS NULL THEN coalesce((
            SELECT bool_or(coalesce(
              (SELECT e.ends_task <> 'stopped' FROM task_engine.ended_executions e
               WHERE e.task_id = d.depends_on ORDER BY e.attempt DESC LIMIT 1), true))
            FROM task_engine.task_dependencies d
            WHERE d.task_id = s.task_id AND d.condition = 'failure'), true) END AS needed
        FROM task_engine.suspended_tasks s
        LEFT JOIN task_engine.waiting_tasks w
          ON w.task_id = s.task_id AND w.attempt = s.attempt + 1
            -- Not starts_with: it would be a range of the index by lane, with all blocked tasks.
            AND left(w.queue, 1) = chr(30)
        LEFT JOIN LATERAL (
          -- The next task that has not ended (''), or has not succeeded although it must.
          SELECT d.depends_on, n.ended
          FROM task_engine.task_dependencies d
          CROSS JOIN LATERAL (
            SELECT coalesce(
              (SELECT CASE
                 WHEN e.ends_task IS NULL THEN ''
                 WHEN (SELECT r.attempt FROM task_engine.reopened_tasks r
                       WHERE r.task_id = d.depends_on AND r.attempt = e.attempt) IS NOT NULL THEN ''
                 ELSE e.ends_task::text END
               FROM task_engine.ended_executions e
               WHERE e.task_id = d.depends_on ORDER BY e.attempt DESC LIMIT 1),
              CASE WHEN (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = d.depends_on) IS NULL
                THEN 'removed' ELSE '' END) AS ended
            OFFSET 0
          ) AS n
          WHERE d.task_id = s.task_id AND d.depends_on >= s.blocked_on AND d.condition IS NOT NULL
            AND (n.ended = '' OR d.condition = 'success' AND n.ended <> 'stopped')
          ORDER BY d.depends_on LIMIT 1
        ) AS next ON true
        WHERE s.task_id = ANY (found)
        OFFSET 0
      ) AS f;
      IF decided.started IS NOT NULL THEN
        WITH free AS MATERIALIZED (
          -- A row that another transaction has locked is left to a heartbeat.
          SELECT w.task_id FROM task_engine.waiting_tasks w
          WHERE w.task_id = ANY (decided.started) AND left(w.queue, 1) = chr(30)
          ORDER BY w.task_id FOR UPDATE SKIP LOCKED
        ), gone AS (
          DELETE FROM task_engine.waiting_tasks w
          WHERE w.task_id = ANY (ARRAY(SELECT f.task_id FROM free f))
          RETURNING w.*
        ), freed AS (
          DELETE FROM task_engine.suspended_tasks s
          WHERE s.task_id = ANY (ARRAY(SELECT f.task_id FROM free f))
        ), again AS (
          INSERT INTO task_engine.waiting_tasks
            (task_id, due_at, priority, attempt, retry_number, queue, task_class)
          SELECT g.task_id, greatest(g.due_at, clock.now), g.priority, g.attempt, g.retry_number,
            substr(g.queue, 2), g.task_class
          FROM gone g CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
          ORDER BY g.task_id
          RETURNING task_id, task_class, queue, priority, due_at
        ), woken AS MATERIALIZED (
          SELECT task_engine.wake(soon.task_class, soon.queue, soon.priority) FROM (
            SELECT a.task_class, a.queue, max(a.priority) AS priority FROM again a
            WHERE a.due_at < clock_timestamp() + interval '15 seconds' GROUP BY 1, 2
          ) AS soon
        )
        SELECT count(*) + 0 * (SELECT count(*) FROM woken) INTO started FROM again;
        resumed := resumed + started;
      END IF;
      IF decided.ids IS NOT NULL THEN
        cancelled := cancelled || task_engine.cancel_dependents(decided.ids, decided.errors);
      END IF;
      IF decided.moved IS NOT NULL THEN
        UPDATE task_engine.suspended_tasks s SET blocked_on = m.next
        FROM unnest(decided.moved, decided.moved_to) AS m(id, next)
        WHERE s.task_id = m.id AND s.blocked_on <> m.next;
        watching := watching || ARRAY(SELECT DISTINCT unnest(decided.moved_to));
      END IF;
      IF decided.stale IS NOT NULL THEN
        -- It was cancelled, or something else started it.
        DELETE FROM task_engine.suspended_tasks s
        WHERE s.task_id = ANY (decided.stale) AND s.watching IS NULL AND s.signals = '{}';
        UPDATE task_engine.suspended_tasks s SET blocked_on = NULL, late_parents = NULL
        WHERE s.task_id = ANY (decided.stale);
      END IF;
    END IF;
    EXIT WHEN cardinality(cancelled) = 0;
    looked_at := cancelled;
    given := NULL;
  END LOOP;
END $$;

-- Existing tasks that others are going to depend on: locks them until the end of the
-- transaction, and writes into their contexts that others wait for them, so that their engines
-- tell about their ends. Returns where each is: 'waiting', 'running', or 'ended'. Raises if one
-- does not exist.
--
-- The tasks, then their waiting rows, then the reads, as create_unique_tasks does. A waiting
-- task does not start before the end of the transaction: its end is seen by the engine. The
-- engine of a running one does not know: the heartbeats look at it.
CREATE FUNCTION task_engine.await_tasks(ids bigint[]) RETURNS TABLE (task_id bigint, place text)
LANGUAGE plpgsql
-- As resolve_dependents.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  missing bigint;
  locked bigint;
  seen bigint;
  unaware bigint[];
  was_import text;
BEGIN
  PERFORM c.id FROM task_engine.created_tasks c
  WHERE c.id = ANY ($1) ORDER BY c.id FOR NO KEY UPDATE;
  SELECT min(a.id) INTO missing FROM unnest($1) AS a(id)
  WHERE (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = a.id) IS NULL;
  IF missing IS NOT NULL THEN
    RAISE EXCEPTION 'task % does not exist, or was removed', missing
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- Locked rows stay, so if as many wait in the second statement as were locked by the first,
  -- they are the same. Otherwise some were requeued in between.
  LOOP
    SELECT count(*) INTO locked FROM (
      SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = ANY ($1)
      ORDER BY w.task_id FOR UPDATE
    ) AS w;
    SELECT count(*) INTO seen FROM task_engine.waiting_tasks w WHERE w.task_id = ANY ($1);
    EXIT WHEN seen <= locked;
  END LOOP;

  was_import := current_setting('taskengine.import', true);
  unaware := ARRAY(
    SELECT c.id FROM task_engine.created_tasks c
    WHERE c.id = ANY ($1) AND c.context -> 'awaited' IS DISTINCT FROM 'true');
  IF cardinality(unaware) > 0 THEN
    -- It may name limits that were removed.
    PERFORM set_config('taskengine.import', 'on', true);
    UPDATE task_engine.created_tasks c SET context = c.context || '{"awaited": true}'
    WHERE c.id = ANY (unaware);
    PERFORM set_config('taskengine.import', coalesce(was_import, ''), true);
    -- A claim with an older snapshot must find the row gone, and not the old context.
    WITH gone AS (
      DELETE FROM task_engine.waiting_tasks w WHERE w.task_id = ANY (unaware) RETURNING w.*
    ), again AS (
      INSERT INTO task_engine.waiting_tasks
        (task_id, due_at, priority, attempt, retry_number, queue, task_class, lane_key)
      SELECT g.task_id, g.due_at, g.priority, g.attempt, g.retry_number, g.queue, g.task_class,
        g.lane_key
      FROM gone g ORDER BY g.task_id
      RETURNING task_class, queue, priority, due_at
    )
    SELECT count(task_engine.wake(soon.task_class, soon.queue, soon.priority)) INTO seen FROM (
      SELECT a.task_class, ltrim(a.queue, chr(31)) AS queue, max(a.priority) AS priority
      FROM again a
      WHERE a.due_at < clock_timestamp() + interval '15 seconds' AND NOT starts_with(a.queue, chr(30))
      GROUP BY 1, 2
    ) AS soon;
  END IF;

  -- One that was retried before others depended on it.
  INSERT INTO task_engine.reopened_tasks (task_id, attempt)
  SELECT t.id, e.attempt
  FROM task_engine.tasks t
  CROSS JOIN LATERAL (
    SELECT x.attempt, x.ends_task FROM task_engine.ended_executions x
    WHERE x.task_id = t.id ORDER BY x.attempt DESC LIMIT 1
  ) AS e
  WHERE t.id = ANY ($1) AND t.status IN ('waiting', 'running') AND e.ends_task IS NOT NULL
  ORDER BY t.id
  ON CONFLICT DO NOTHING;

  RETURN QUERY
  SELECT t.id, CASE WHEN t.status IN ('waiting', 'running') THEN t.status::text ELSE 'ended' END
  FROM task_engine.tasks t WHERE t.id = ANY ($1) ORDER BY t.id;
END $$;

-- Creates the tasks of a flow, for the store and for create_flow. The first arrays are those of
-- create_unique_tasks. The last four are side by side: the place of a dependent task (from 1),
-- the place of the task that it depends on, which is lower, or its id, and the condition.
-- Returns a row for each task, in the order of the arrays.
--
-- Blocked tasks are inserted as such, so that no waiting row is replaced.
CREATE FUNCTION task_engine.create_flow_tasks(
  flow_name text,
  flow_correlation_id text,
  task_classes text[],
  task_parameters jsonb[],
  scheduled_ats timestamptz[],
  delays interval[],
  priorities integer[],
  queues text[],
  contexts jsonb[],
  unique_keys text[],
  unique_scopes text[],
  on_conflicts text[],
  dependent_places integer[],
  depends_on_places integer[],
  depends_on_ids bigint[],
  conditions text[]
) RETURNS TABLE (task_id bigint, correlation_id text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  asked_at CONSTANT timestamptz := statement_timestamp();
  flow text := $2;
  ids bigint[];
  blocked boolean[];
  kept bigint[] := '{}';
  existing bigint[] := ARRAY(SELECT DISTINCT a.id FROM unnest($15) AS a(id) WHERE a.id IS NOT NULL);
  running bigint[];
  ended bigint[];
  twice record;
  has_keys CONSTANT boolean := coalesce(num_nonnulls(VARIADIC $10) > 0, false);
BEGIN
  IF flow IS NULL THEN
    SELECT coalesce(
      (SELECT coalesce(c.context ->> 'correlation_id', c.id::text)
       FROM task_engine.created_tasks c
       WHERE c.id = (SELECT a.id FROM unnest($15) WITH ORDINALITY AS a(id, place)
                     WHERE a.id IS NOT NULL ORDER BY a.place LIMIT 1)),
      gen_random_uuid()::text)
    INTO flow;
  END IF;
  -- The row stays while tasks are added to it.
  LOOP
    INSERT INTO task_engine.flows (correlation_id, name, created_at)
    VALUES (flow, $1, asked_at) ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
    PERFORM FROM task_engine.flows f WHERE f.correlation_id = flow FOR KEY SHARE;
    EXIT WHEN FOUND;
  END LOOP;

  -- Which places depend on others: no join, which may be a nested loop.
  blocked := ARRAY(
    SELECT bool_or(p.depends) FROM (
      SELECT place, false AS depends FROM generate_series(1, cardinality($3)) AS place
      UNION ALL
      SELECT place, true FROM unnest($13) AS place
    ) AS p GROUP BY p.place ORDER BY p.place);

  IF has_keys THEN
    -- Tasks with keys depend on none. One that existed may be anywhere.
    WITH made AS (
      SELECT u.task_id, u.outcome, u.place, a.place AS place_in_flow
      FROM (
        SELECT array_agg(a.place ORDER BY a.place) AS places,
          array_agg(a.class ORDER BY a.place) AS classes,
          array_agg(a.parameters ORDER BY a.place) AS parameters,
          array_agg(a.scheduled_at ORDER BY a.place) AS scheduled_ats,
          array_agg(a.after ORDER BY a.place) AS delays,
          array_agg(a.priority ORDER BY a.place) AS priorities,
          array_agg(a.queue ORDER BY a.place) AS queues,
          array_agg(coalesce(a.context, '{}') || jsonb_build_object('correlation_id', flow)
            ORDER BY a.place) AS contexts,
          array_agg(a.key ORDER BY a.place) AS keys,
          array_agg(a.scope ORDER BY a.place) AS scopes,
          array_agg(a.answer ORDER BY a.place) AS answers
        FROM unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, blocked) WITH ORDINALITY
          AS a(class, parameters, scheduled_at, after, priority, queue, context, key, scope, answer,
            is_blocked, place)
        WHERE NOT a.is_blocked
      ) AS x
      CROSS JOIN LATERAL task_engine.create_unique_tasks(
        x.classes, x.parameters, x.scheduled_ats, x.delays, x.priorities, x.queues, x.contexts,
        x.keys, x.scopes, x.answers) WITH ORDINALITY AS u(task_id, outcome, place)
      CROSS JOIN LATERAL (SELECT x.places[u.place] AS place) AS a
    )
    SELECT array_agg(m.task_id ORDER BY m.place_in_flow),
      coalesce(array_agg(m.task_id) FILTER (WHERE m.outcome <> 'created'), '{}')
    INTO ids, kept FROM made m;
    existing := ARRAY(SELECT DISTINCT unnest(existing || kept));
  END IF;

  IF cardinality(existing) > 0 THEN
    SELECT coalesce(array_agg(a.task_id) FILTER (WHERE a.place = 'running'), '{}'),
      coalesce(array_agg(a.task_id) FILTER (WHERE a.place = 'ended'), '{}')
    INTO running, ended FROM task_engine.await_tasks(existing) AS a;
  END IF;

  WITH created AS (
    INSERT INTO task_engine.created_tasks
      (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
    SELECT
      a.class, coalesce(a.parameters, '{}'),
      coalesce(a.context, '{}') || jsonb_build_object('correlation_id', flow),
      coalesce(a.queue, 'default'), coalesce(a.priority, 0),
      coalesce(a.scheduled_at, asked_at + a.after, asked_at), asked_at
    FROM unnest($3, $4, $5, $6, $7, $8, $9, blocked) WITH ORDINALITY
      AS a(class, parameters, scheduled_at, after, priority, queue, context, is_blocked, place)
    WHERE ids IS NULL OR a.is_blocked
    ORDER BY a.place
    RETURNING id, task_class, queue, priority, scheduled_at
  ), numbered AS (
    SELECT c.*, row_number() OVER (ORDER BY c.id) AS number FROM created c
  ), queued AS (
    INSERT INTO task_engine.waiting_tasks
      (task_id, due_at, priority, attempt, retry_number, queue, task_class)
    SELECT n.id, n.scheduled_at, n.priority, 1, 0,
      CASE WHEN ids IS NOT NULL OR blocked[n.number] THEN chr(30) || n.queue ELSE n.queue END,
      n.task_class
    FROM numbered n
  )
  SELECT CASE WHEN ids IS NULL THEN array_agg(n.id ORDER BY n.id)
    -- Those with keys, and then the others.
    ELSE ids || coalesce(array_agg(n.id ORDER BY n.id), '{}') END
  INTO ids FROM numbered n;

  IF has_keys THEN
    -- In the order of the arrays.
    ids := ARRAY(
      SELECT ids[p.number] FROM (
        SELECT b.place, row_number() OVER (ORDER BY b.is_blocked, b.place) AS number
        FROM unnest(blocked) WITH ORDINALITY AS b(is_blocked, place)
      ) AS p ORDER BY p.place);
  END IF;

  INSERT INTO task_engine.task_dependencies (task_id, depends_on, condition)
  SELECT ids[d.place], coalesce(d.on_id, ids[d.on_place]), d.condition
  FROM unnest($13, $14, $15, $16) AS d(place, on_place, on_id, condition)
  ORDER BY 1, 2
  ON CONFLICT DO NOTHING;
  IF cardinality(kept) > 0 THEN
    -- Two tasks of the flow may be one that existed.
    FOR twice IN
      SELECT d.id, d.on_id FROM (
        SELECT ids[a.place] AS id, coalesce(a.on_id, ids[a.on_place]) AS on_id, a.condition
        FROM unnest($13, $14, $15, $16) AS a(place, on_place, on_id, condition)
      ) AS d
      GROUP BY d.id, d.on_id HAVING count(DISTINCT d.condition) > 1 LIMIT 1
    LOOP
      RAISE EXCEPTION 'task % depends on task % under two conditions; use one',
        (SELECT coalesce(c.context -> 'flow_task', to_jsonb(c.task_class)) FROM task_engine.created_tasks c WHERE c.id = twice.id),
        twice.on_id
        USING ERRCODE = 'invalid_parameter_value';
    END LOOP;
  END IF;
  INSERT INTO task_engine.suspended_tasks (task_id, attempt, signals, blocked_on, late_parents)
  SELECT d.id, 0, '{}', min(d.on_id), array_agg(d.on_id) FILTER (WHERE d.on_id = ANY (running))
  FROM (
    SELECT ids[a.place] AS id, coalesce(a.on_id, ids[a.on_place]) AS on_id
    FROM unnest($13, $14, $15) AS a(place, on_place, on_id)
  ) AS d
  GROUP BY d.id ORDER BY d.id;

  IF cardinality(ended) > 0 THEN
    PERFORM task_engine.resolve_dependents('{}', ARRAY(
      SELECT DISTINCT ids[a.place] FROM unnest($13, $14, $15) AS a(place, on_place, on_id)
      WHERE coalesce(a.on_id, ids[a.on_place]) = ANY (ended)));
  END IF;

  -- As in create_tasks; tasks with keys have been told about.
  IF NOT has_keys THEN
    PERFORM task_engine.wake(soon.class, soon.queue, soon.priority) FROM (
      SELECT a.class, coalesce(a.queue, 'default') AS queue, max(coalesce(a.priority, 0)) AS priority
      FROM unnest($3, $5, $6, $7, $8, blocked) AS a(class, scheduled_at, after, priority, queue, is_blocked)
      WHERE NOT a.is_blocked
        AND coalesce(a.scheduled_at, asked_at + a.after, asked_at) < asked_at + interval '15 seconds'
      GROUP BY 1, 2
    ) AS soon;
  END IF;

  RETURN QUERY SELECT a.id, flow FROM unnest(ids) WITH ORDINALITY AS a(id, place) ORDER BY a.place;
END $$;

-- Ended tasks that are about to be retried, which are locked: notes that their ends no longer
-- count for those that depend on them, and restores what was cancelled because of them, level
-- by level. A restored task waits for them as before its cancellation. So does a retried one
-- that depends on tasks that have not ended. Returns the tasks that wait for others now, and
-- all that may have to be decided about after the commit.
--
-- Each level is locked, the tasks and then their suspended rows, before it is read: a session
-- that decides about it at this moment comes first. A new dependent locks what it depends on,
-- so no task of the next level is missed.
CREATE FUNCTION task_engine.restore_dependents(
  retried bigint[], OUT restored bigint[], OUT dependents bigint[]
)
LANGUAGE plpgsql
-- As resolve_dependents, but with sorts: a group in the order of a key would read all of it.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  ended CONSTANT bigint[] := ARRAY(
    SELECT t.id FROM task_engine.tasks t
    WHERE t.id = ANY ($1) AND t.status IN ('failed', 'cancelled') ORDER BY t.id);
  level bigint[] := ARRAY(
    SELECT p.id FROM unnest(ended) AS p(id)
    WHERE (SELECT d.task_id FROM task_engine.task_dependencies d
           WHERE d.depends_on = p.id AND d.condition IS NOT NULL LIMIT 1) IS NOT NULL);
  found bigint[];
BEGIN
  restored := '{}';
  dependents := '{}';
  WHILE cardinality(level) > 0 LOOP
    INSERT INTO task_engine.reopened_tasks (task_id, attempt)
    SELECT p.id, (SELECT max(e.attempt) FROM task_engine.ended_executions e WHERE e.task_id = p.id)
    FROM unnest(level) AS p(id) ORDER BY p.id
    ON CONFLICT DO NOTHING;
    found := ARRAY(
      SELECT d.task_id FROM task_engine.task_dependencies d
      WHERE d.depends_on = ANY (level) AND d.condition IS NOT NULL);
    PERFORM c.id FROM task_engine.created_tasks c
    WHERE c.id = ANY (found) ORDER BY c.id FOR UPDATE;
    PERFORM s.task_id FROM task_engine.suspended_tasks s
    WHERE s.task_id = ANY (found) ORDER BY s.task_id FOR UPDATE;

    -- Those that are still blocked look at them again.
    WITH lowest AS MATERIALIZED (
      SELECT d.task_id, min(d.depends_on) AS depends_on FROM task_engine.task_dependencies d
      WHERE d.depends_on = ANY (level) AND d.condition IS NOT NULL GROUP BY d.task_id
    ), moved AS (
      UPDATE task_engine.suspended_tasks s SET blocked_on = least(s.blocked_on, l.depends_on)
      FROM lowest l WHERE s.task_id = l.task_id AND s.blocked_on IS NOT NULL
      RETURNING s.task_id
    )
    SELECT dependents || ARRAY(SELECT m.task_id FROM moved m) INTO dependents;

    -- Those that were cancelled because of them, unless something else would cancel them.
    level := task_engine.block_again(ARRAY(
      SELECT c.id
      FROM task_engine.created_tasks c
      CROSS JOIN LATERAL (
        SELECT x.attempt, x.ends_task, x.error, x.claim_id FROM task_engine.ended_executions x
        WHERE x.task_id = c.id ORDER BY x.attempt DESC LIMIT 1
      ) AS e
      WHERE c.id = ANY (found) AND e.ends_task = 'cancelled'
        AND e.error ->> 'exception' = 'DependencyFailed' AND e.claim_id IS NULL
        -- It was not retried.
        AND (SELECT w.task_id FROM task_engine.waiting_tasks w WHERE w.task_id = c.id) IS NULL
        AND (SELECT k.id FROM task_engine.claims k
             WHERE k.task_ids @> ARRAY[c.id]
               AND k.attempts[array_position(k.task_ids, c.id)] > e.attempt LIMIT 1) IS NULL));
    restored := restored || level;
  END LOOP;
  -- Those that are retried themselves.
  restored := restored || task_engine.block_again(ARRAY(
    SELECT p.id FROM unnest(ended) AS p(id) WHERE p.id <> ALL (restored)));
  dependents := dependents || restored;
END $$;

-- Of these ended tasks, which are locked, those that depend on tasks that have not ended, and
-- on none that has not succeeded although they need it: they wait again. Returns them.
CREATE FUNCTION task_engine.block_again(ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  blocked bigint[];
BEGIN
  WITH again AS MATERIALIZED (
    SELECT c.id, c.scheduled_at, c.priority, c.queue, c.task_class, o.depends_on,
      (SELECT max(e.attempt) FROM task_engine.ended_executions e WHERE e.task_id = c.id) AS attempt
    FROM task_engine.created_tasks c
    CROSS JOIN LATERAL (
      SELECT d.depends_on FROM task_engine.task_dependencies d
      WHERE d.task_id = c.id AND d.condition IS NOT NULL
        AND task_engine.dependency_end(d.depends_on) = 'open'
      ORDER BY d.depends_on LIMIT 1
    ) AS o
    WHERE c.id = ANY ($1)
      AND (SELECT d.task_id FROM task_engine.task_dependencies d
           WHERE d.task_id = c.id AND d.condition = 'success'
             AND task_engine.dependency_end(d.depends_on) NOT IN ('open', 'stopped')
           LIMIT 1) IS NULL
  ), suspended AS (
    INSERT INTO task_engine.suspended_tasks (task_id, attempt, signals, blocked_on)
    SELECT a.id, a.attempt, '{}', a.depends_on FROM again a ORDER BY a.id
    ON CONFLICT (task_id) DO UPDATE SET attempt = EXCLUDED.attempt, signals = '{}',
      watching = NULL, blocked_on = EXCLUDED.blocked_on, late_parents = NULL
  ), queued AS (
    INSERT INTO task_engine.waiting_tasks
      (task_id, due_at, priority, attempt, retry_number, queue, task_class)
    SELECT a.id, a.scheduled_at, a.priority, a.attempt + 1, 0, chr(30) || a.queue, a.task_class
    FROM again a
  )
  SELECT ARRAY(SELECT a.id FROM again a ORDER BY a.id) INTO blocked;
  RETURN blocked;
END $$;

-- Creates a flow: tasks that depend on each other, all or none. For example:
--
--   SELECT * FROM task_engine.create_flow('{"name": "nightly", "tasks": {
--     "extract": {"class": "extract", "parameters": {"day": "2026-11-16"}},
--     "load": {"class": "load", "after": "extract"},
--     "report": {"class": "report", "after_end": ["extract", "load"]},
--     "alert": {"class": "alert", "after_failure": [17, "load"]}}}');
--
-- A task starts after all of `after` have succeeded, all of `after_end` have ended, and all of
-- `after_failure` have ended and one of them has not succeeded. Each is the name of a task of
-- the flow, the id of an existing task, or a list of them. `delay` is an interval; the other
-- fields are those of create_task, without keys. Returns the id of each task.
CREATE FUNCTION task_engine.create_flow(flow jsonb) RETURNS TABLE (name text, task_id bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  tasks CONSTANT jsonb := $1 -> 'tasks';
  names text[];
  bad text;
  one record;
  total integer;
  places jsonb;
  -- The dependencies, side by side.
  edges record;
  edge_count integer;
  -- Those within the flow, in the order of the tasks that they depend on.
  inner_edges record;
  first_edge integer[];
  open integer[];
  awaited boolean[];
  ordered integer[] := '{}';
  new_places integer[];
  head integer := 0;
  tail integer := 0;
  here integer;
  edge integer;
  path integer[] := '{}';
BEGIN
  IF jsonb_typeof($1) IS DISTINCT FROM 'object' OR jsonb_typeof(tasks) IS DISTINCT FROM 'object' THEN
    RAISE EXCEPTION 'a flow is an object with the field tasks, an object with a task for each name'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT k INTO bad FROM jsonb_object_keys($1) AS k WHERE k NOT IN ('name', 'correlation_id', 'tasks') LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'a flow has the fields name, correlation_id and tasks, not %', to_json(bad)
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  names := ARRAY(SELECT k FROM jsonb_object_keys(tasks) WITH ORDINALITY AS t(k, place) ORDER BY t.place);
  total := cardinality(names);
  IF total = 0 THEN
    RAISE EXCEPTION 'a flow needs a task before its dependencies'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF total > 10000 THEN
    RAISE EXCEPTION 'a flow has at most 10000 tasks, this one has %', total
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT n INTO bad FROM (
    SELECT unnest(names) UNION ALL VALUES ($1 ->> 'name'), ($1 ->> 'correlation_id')
  ) AS a(n) WHERE octet_length(n) NOT BETWEEN 1 AND 200 OR n ~ '[[:cntrl:]]' LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'a name in a flow has 1 to 200 bytes and no control characters, not %', to_json(left(bad, 200))
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  FOR one IN
    SELECT t.name, t.task, CASE
      WHEN jsonb_typeof(t.task) <> 'object' THEN 'is no object'
      WHEN jsonb_typeof(t.task -> 'class') IS DISTINCT FROM 'string' THEN 'needs a class'
      WHEN t.task ?| ARRAY['unique_key', 'unique_scope', 'on_conflict']
        THEN 'has a unique key; create it before, and depend on its id'
      WHEN t.task ? 'scheduled_at' AND t.task ? 'delay' THEN 'has scheduled_at and delay; use one'
      ELSE (
        SELECT 'has an unknown field ' || to_json(k) FROM jsonb_object_keys(t.task) AS k
        WHERE k NOT IN ('class', 'parameters', 'context', 'queue', 'priority', 'scheduled_at',
          'delay', 'after', 'after_end', 'after_failure', 'limits', 'retry', 'traceparent') LIMIT 1)
      END AS problem
    FROM jsonb_each(tasks) AS t(name, task)
  LOOP
    IF one.problem IS NOT NULL THEN
      RAISE EXCEPTION 'task % %', to_json(one.name), one.problem
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
  END LOOP;

  SELECT jsonb_object_agg(n.name, n.place) INTO places
  FROM unnest(names) WITH ORDINALITY AS n(name, place);
  FOR one IN
    SELECT t.name, d.target
    FROM jsonb_each(tasks) AS t(name, task)
    CROSS JOIN unnest(ARRAY['after', 'after_end', 'after_failure']) AS k(field)
    CROSS JOIN LATERAL jsonb_array_elements(
      CASE coalesce(jsonb_typeof(t.task -> k.field), 'null') WHEN 'array' THEN t.task -> k.field
        WHEN 'null' THEN '[]' ELSE jsonb_build_array(t.task -> k.field) END) AS d(target)
    WHERE CASE jsonb_typeof(d.target)
      WHEN 'string' THEN NOT places ? (d.target #>> '{}')
      WHEN 'number' THEN d.target::text !~ '^[1-9][0-9]{0,17}$'
      ELSE true END
    LIMIT 1
  LOOP
    IF jsonb_typeof(one.target) <> 'string' THEN
      RAISE EXCEPTION 'task % depends on %, which is neither a name nor the id of a task', to_json(one.name), left(one.target::text, 200)
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RAISE EXCEPTION 'task % depends on %, which is no task of the flow', to_json(one.name), to_json(left(one.target #>> '{}', 200))
      USING ERRCODE = 'invalid_parameter_value';
  END LOOP;
  SELECT array_agg(d.place) AS places, array_agg(d.on_place) AS on_places,
    array_agg(d.on_id) AS on_ids, array_agg(d.condition) AS conditions
  INTO edges
  FROM (
    SELECT DISTINCT t.place::integer,
      CASE WHEN jsonb_typeof(d.target) = 'string' THEN (places ->> (d.target #>> '{}'))::integer END AS on_place,
      CASE WHEN jsonb_typeof(d.target) = 'number' THEN d.target::text::bigint END AS on_id,
      k.condition
    FROM jsonb_each(tasks) WITH ORDINALITY AS t(name, task, place)
    CROSS JOIN (VALUES ('after', 'success'), ('after_end', 'end'), ('after_failure', 'failure')) AS k(field, condition)
    CROSS JOIN LATERAL jsonb_array_elements(
      CASE coalesce(jsonb_typeof(t.task -> k.field), 'null') WHEN 'array' THEN t.task -> k.field
        WHEN 'null' THEN '[]' ELSE jsonb_build_array(t.task -> k.field) END) AS d(target)
    ORDER BY 1, 2, 3, 4
  ) AS d;
  edge_count := coalesce(cardinality(edges.places), 0);
  IF edge_count > 100000 THEN
    RAISE EXCEPTION 'a flow has at most 100000 dependencies, this one has %', edge_count
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT names[d.place] AS name, coalesce(to_json(names[d.on_place])::text, 'task ' || d.on_id) AS target
  INTO one
  FROM unnest(edges.places, edges.on_places, edges.on_ids) AS d(place, on_place, on_id)
  GROUP BY d.place, d.on_place, d.on_id HAVING count(*) > 1 LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'task % depends on % under two conditions; use one', to_json(one.name), one.target
      USING ERRCODE = 'invalid_parameter_value';
  END IF;

  -- Each task after those that it depends on.
  open := array_fill(0, ARRAY[total]);
  first_edge := array_fill(1, ARRAY[total + 1]);
  awaited := array_fill(false, ARRAY[total]);
  SELECT array_agg(d.place ORDER BY d.on_place, d.place) AS places,
    array_agg(d.on_place ORDER BY d.on_place, d.place) AS on_places
  INTO inner_edges
  FROM unnest(edges.places, edges.on_places) AS d(place, on_place) WHERE d.on_place IS NOT NULL;
  edge := 1;
  FOR n IN 1 .. total LOOP
    first_edge[n] := edge;
    WHILE inner_edges.on_places[edge] = n LOOP
      open[inner_edges.places[edge]] := open[inner_edges.places[edge]] + 1;
      awaited[n] := true;
      edge := edge + 1;
    END LOOP;
  END LOOP;
  first_edge[total + 1] := edge;
  FOR n IN 1 .. total LOOP
    IF open[n] = 0 THEN
      tail := tail + 1;
      ordered[tail] := n;
    END IF;
  END LOOP;
  new_places := array_fill(0, ARRAY[total]);
  WHILE head < tail LOOP
    head := head + 1;
    here := ordered[head];
    new_places[here] := head;
    FOR edge IN first_edge[here] .. first_edge[here + 1] - 1 LOOP
      open[inner_edges.places[edge]] := open[inner_edges.places[edge]] - 1;
      IF open[inner_edges.places[edge]] = 0 THEN
        tail := tail + 1;
        ordered[tail] := inner_edges.places[edge];
      END IF;
    END LOOP;
  END LOOP;
  IF tail < total THEN
    -- Each open task depends on an open one: following them leads into a cycle.
    here := array_position(new_places, 0);
    WHILE here <> ALL (path) LOOP
      path := path || here;
      SELECT d.on_place INTO here
      FROM unnest(edges.places, edges.on_places) AS d(place, on_place)
      WHERE d.place = here AND d.on_place IS NOT NULL AND new_places[d.on_place] = 0
      ORDER BY d.on_place LIMIT 1;
    END LOOP;
    path := path[array_position(path, here):] || here;
    RAISE EXCEPTION 'the tasks of the flow wait for each other: %', (
      SELECT string_agg(names[p.place], ' → ' ORDER BY p.number DESC)
      FROM unnest(path) WITH ORDINALITY AS p(place, number))
      USING ERRCODE = 'invalid_parameter_value';
  END IF;

  RETURN QUERY
  WITH task AS (
    SELECT new_places[t.place] AS place, t.name, t.task,
      coalesce(nullif(t.task -> 'context', 'null'), '{}')
        || jsonb_strip_nulls(jsonb_build_object(
          'retry', t.task -> 'retry', 'traceparent', t.task -> 'traceparent', 'flow_task', t.name))
        -- In limits, null is a key: the value of the parameter that the limit names.
        || CASE WHEN coalesce(t.task -> 'limits', 'null') <> 'null'
             THEN jsonb_build_object('limits', t.task -> 'limits') ELSE '{}' END
        || CASE WHEN awaited[t.place] THEN '{"awaited": true}'::jsonb ELSE '{}' END
        || CASE WHEN t.place = ANY (edges.places) THEN '{"dependent": true}'::jsonb ELSE '{}' END AS context
    FROM jsonb_each(tasks) WITH ORDINALITY AS t(name, task, place)
  ), columns AS (
    SELECT array_agg(t.name ORDER BY t.place) AS names,
      array_agg(t.task ->> 'class' ORDER BY t.place) AS classes,
      array_agg(nullif(t.task -> 'parameters', 'null') ORDER BY t.place) AS parameters,
      array_agg((t.task ->> 'scheduled_at')::timestamptz ORDER BY t.place) AS scheduled_ats,
      array_agg((t.task ->> 'delay')::interval ORDER BY t.place) AS delays,
      array_agg((t.task ->> 'priority')::integer ORDER BY t.place) AS priorities,
      array_agg(t.task ->> 'queue' ORDER BY t.place) AS queues,
      array_agg(t.context ORDER BY t.place) AS contexts
    FROM task t
  ), dependency AS (
    SELECT array_agg(new_places[d.place] ORDER BY new_places[d.place], d.number) AS places,
      array_agg(new_places[d.on_place] ORDER BY new_places[d.place], d.number) AS on_places,
      array_agg(d.on_id ORDER BY new_places[d.place], d.number) AS on_ids,
      array_agg(d.condition ORDER BY new_places[d.place], d.number) AS conditions
    FROM unnest(edges.places, edges.on_places, edges.on_ids, edges.conditions) WITH ORDINALITY
      AS d(place, on_place, on_id, condition, number)
  )
  SELECT c.names[f.place], f.task_id
  FROM columns c CROSS JOIN dependency d
  CROSS JOIN LATERAL task_engine.create_flow_tasks(
    $1 ->> 'name', $1 ->> 'correlation_id', c.classes, c.parameters, c.scheduled_ats, c.delays,
    c.priorities, c.queues, c.contexts, NULL, NULL, NULL,
    coalesce(d.places, '{}'), coalesce(d.on_places, '{}'), coalesce(d.on_ids, '{}'),
    coalesce(d.conditions, '{}')) WITH ORDINALITY AS f(task_id, correlation_id, place)
  ORDER BY f.place;
END $$;

-- As in 0002, with one difference: a replaced task keeps the mark that others wait for it.
CREATE OR REPLACE FUNCTION task_engine.create_unique_tasks(
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
            || CASE WHEN c.context -> 'awaited' = 'true' THEN '{"awaited": true}'::jsonb ELSE '{}' END
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
