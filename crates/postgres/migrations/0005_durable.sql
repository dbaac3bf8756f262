-- Durable tasks: recorded steps, signals, and tasks that wait for others. A task that
-- uses none of this has no row here.

-- Recorded steps. Insert only; the primary key decides which record of a name counts.
-- kind: step (a result), sleep (until), wait (for the signal of its name, until), call
-- (the ids of the children as its result).
CREATE TABLE task_engine.steps (
  task_id bigint NOT NULL,
  name text NOT NULL
    CONSTRAINT "a step has a name of 1 to 220 bytes"
    CHECK (octet_length(name) BETWEEN 1 AND 220),
  number integer NOT NULL,
  attempt integer NOT NULL,
  kind text NOT NULL
    CONSTRAINT "a kind of a step is step, sleep, wait or call"
    CHECK (kind IN ('step', 'sleep', 'wait', 'call')),
  result jsonb
    CONSTRAINT "the result of a step is within the limits of JSON"
    CHECK (pg_column_size(result) < 200 AND octet_length(result::text) < 130
      OR task_engine.check_json(result, 'the result of the step')),
  until timestamptz
    CONSTRAINT "a step ends before the year 9999"
    CHECK (isfinite(until) AND until < '9999-01-01Z'),
  started_at timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (task_id, name)
);

-- Signals to tasks. Insert only; the first row of a name counts. The timeout of a wait is
-- a row, too, so that the primary key decides between the signal and the timeout.
CREATE TABLE task_engine.signals (
  task_id bigint NOT NULL,
  name text NOT NULL
    CONSTRAINT "a signal has a name of 1 to 220 bytes"
    CHECK (octet_length(name) BETWEEN 1 AND 220),
  payload jsonb NOT NULL
    CONSTRAINT "the payload of a signal is within the limits of JSON"
    CHECK (pg_column_size(payload) < 200 AND octet_length(payload::text) < 130
      OR task_engine.check_json(payload, 'the payload of the signal')),
  sent_at timestamptz NOT NULL,
  timed_out boolean NOT NULL DEFAULT false,
  PRIMARY KEY (task_id, name)
);

-- Which tasks a task waits for. Insert only.
CREATE TABLE task_engine.task_dependencies (
  task_id bigint NOT NULL,
  depends_on bigint NOT NULL,
  PRIMARY KEY (task_id, depends_on)
);
-- For retention, which keeps the children of open tasks.
CREATE INDEX task_dependencies_by_child ON task_engine.task_dependencies (depends_on);

-- Tasks that are suspended until a signal arrives or their children have ended. A row
-- counts only while the task waits for the attempt after this one.
CREATE TABLE task_engine.suspended_tasks (
  task_id bigint PRIMARY KEY,
  attempt integer NOT NULL,
  -- The signals that wake it.
  signals text[] NOT NULL,
  -- A child that has not ended: its end is looked at next. Only moves to higher ids.
  watching bigint
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX suspended_tasks_by_watched
  ON task_engine.suspended_tasks (watching) WHERE watching IS NOT NULL;

-- Whether a task has ended: its newest attempt ended it, or it was removed. A task that
-- an operator retries counts as ended until its next attempt has ended.
CREATE FUNCTION task_engine.has_ended(task_id bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT coalesce(
    (SELECT e.ends_task IS NOT NULL FROM task_engine.ended_executions e
     WHERE e.task_id = $1 ORDER BY e.attempt DESC LIMIT 1),
    NOT EXISTS (SELECT FROM task_engine.created_tasks c WHERE c.id = $1))
$$;

-- Sends a signal to a task, in the transaction of the caller. Returns what happened:
--
--   delivered   the task waited for it, and continues
--   kept        the task does not wait for it yet
--   duplicate   refused: a signal of this name was sent before
--   timed_out   refused: the wait for it has timed out
--   task_ended  refused: the task has ended
--   not_found   refused: there is no such task
--
-- The task is locked until the end of the transaction. An attempt that suspends the task
-- meanwhile stays running until then, and sees the signal: suspension locks the task, too,
-- and each reads in a statement after its lock.
CREATE FUNCTION task_engine.signal(
  task_id bigint, name text, payload jsonb DEFAULT 'null'
) RETURNS text
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  status task_engine.task_status;
  waited record;
  woken boolean;
BEGIN
  IF $2 IS NULL OR $2 !~ '^[^#[:cntrl:]]+(#([2-9]|[1-9][0-9]{1,8}))?$'
    OR octet_length(split_part($2, '#', 1)) > 200 THEN
    RAISE EXCEPTION 'invalid name of a signal: %; a name has 1 to 200 bytes, no control characters, and # only before the number of a repeated wait, as in approved#2',
      coalesce(left($2, 200), 'null')
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM FROM task_engine.created_tasks c WHERE c.id = $1 FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 'not_found';
  END IF;
  SELECT t.status INTO status FROM task_engine.tasks t WHERE t.id = $1;
  IF status NOT IN ('waiting', 'running') THEN
    RETURN 'task_ended';
  END IF;
  INSERT INTO task_engine.signals (task_id, name, payload, sent_at)
  VALUES ($1, $2, coalesce($3, 'null'), clock_timestamp()) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN (SELECT CASE WHEN s.timed_out THEN 'timed_out' ELSE 'duplicate' END
            FROM task_engine.signals s WHERE s.task_id = $1 AND s.name = $2);
  END IF;
  DELETE FROM task_engine.suspended_tasks s
  WHERE s.task_id = $1 AND $2 = ANY (s.signals) AND EXISTS (
    SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = $1 AND w.attempt = s.attempt + 1)
  RETURNING s.attempt INTO waited;
  IF NOT FOUND THEN
    RETURN 'kept';
  END IF;
  -- A waiting row is replaced, never updated. If a claim was faster, there is none.
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.task_id = $1 AND w.attempt = waited.attempt + 1
  RETURNING w.* INTO waited;
  IF FOUND THEN
    WITH again AS (
      INSERT INTO task_engine.waiting_tasks
        (task_id, due_at, priority, attempt, retry_number, queue, task_class)
      SELECT c.id, clock_timestamp(), c.priority, waited.attempt, waited.retry_number, c.queue,
        c.task_class
      FROM task_engine.created_tasks c WHERE c.id = $1
      RETURNING task_class, queue, priority
    )
    SELECT task_engine.wake(a.task_class, a.queue, a.priority) INTO woken FROM again a;
  END IF;
  RETURN 'delivered';
END $$;

-- The same for the task that was last created with a unique key. Returns the task, too.
CREATE FUNCTION task_engine.signal_unique(
  task_class text, unique_key text, name text, payload jsonb DEFAULT 'null'
) RETURNS TABLE (task_id bigint, status text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  holder bigint;
  last bigint;
BEGIN
  LOOP
    SELECT u.task_id INTO holder FROM task_engine.unique_tasks u
    WHERE u.task_class = $1 AND u.unique_key = $2;
    task_id := nullif(holder, 0);
    status := task_engine.signal(coalesce(holder, 0), $3, $4);
    -- The key may have gone to another task while this waited for the lock of the first.
    EXIT WHEN status NOT IN ('task_ended', 'not_found') OR holder IS NOT DISTINCT FROM last;
    last := holder;
  END LOOP;
  RETURN NEXT;
END $$;

-- Records a step in a transaction of the application: its effects and the record commit
-- together. Raises TE001 if the attempt is over, and TE002 if the step is recorded already;
-- the transaction is aborted then, and nothing of it counts.
--
-- The row, then a check of the attempt, as complete_attempt does: a check before the row
-- could be out of date. A transaction with one snapshot cannot check again: there a lock
-- fails if the claim is gone (40001). The lock is released at once, so that recovery does not
-- wait for the transaction.
CREATE FUNCTION task_engine.record_step(
  task_id bigint,
  attempt integer,
  claim_id bigint,
  name text,
  number integer,
  result jsonb DEFAULT 'null',
  lasted interval DEFAULT '0'
) RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '10s'
AS $$
#variable_conflict use_column
DECLARE
  now CONSTANT timestamptz := clock_timestamp();
  held boolean;
BEGIN
  IF $4 IS NULL OR $4 !~ '^[^#[:cntrl:]]+(#([2-9]|[1-9][0-9]{1,8}))?$' THEN
    RAISE EXCEPTION 'invalid name of a step: %; a name has 1 to 200 bytes, no control characters, and # only before the number of a repeated name, as in charge#2',
      coalesce(left($4, 200), 'null')
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO task_engine.steps
    (task_id, name, number, attempt, kind, result, started_at, recorded_at)
  VALUES ($1, $4, $5, $2, 'step', coalesce($6, 'null'), now - coalesce($7, '0'), now)
  ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'step % of task % is recorded already', $4, $1
      USING ERRCODE = 'TE002', HINT = 'Roll back: the recorded result counts.';
  END IF;
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    BEGIN
      PERFORM FROM task_engine.claims k WHERE k.id = $3 FOR KEY SHARE;
      RAISE EXCEPTION USING ERRCODE = 'TE003';
    EXCEPTION WHEN SQLSTATE 'TE003' THEN
      NULL;
    END;
  END IF;
  held := EXISTS (
    SELECT FROM task_engine.claims k
    CROSS JOIN LATERAL unnest(k.task_ids, k.attempts) AS h(task_id, attempt)
    WHERE k.id = $3 AND h.task_id = $1 AND h.attempt = $2);
  IF NOT held OR EXISTS (
    SELECT FROM task_engine.ended_executions e WHERE e.task_id = $1 AND e.attempt = $2) THEN
    RAISE EXCEPTION 'task %, attempt % has ended, or is not held under claim %', $1, $2, $3
      USING ERRCODE = 'TE001', HINT = 'Roll back: nothing of this attempt counts.';
  END IF;
END $$;
