-- An attempt completes its task in a transaction of the application's own: what
-- the task did and that it is done commit together, or neither does.
--
-- The fence is the key of ended_executions, as for everybody who ends attempts.
-- From here until the end of the caller's transaction nobody else can end this
-- attempt; if somebody has, or does it first, this raises TE001, and with it the
-- caller's transaction is aborted: nothing of it can be committed any more.
--
-- First the row, then the look at the claim: whoever takes an attempt back
-- deletes its claim. Retention may have removed the row that would have been in
-- the way, so the row alone is not enough; and a look before the row could be
-- out of date by then. A transaction with one snapshot cannot look again: there
-- the lock fails if the claim is gone (40001), and holds up nobody, because the
-- claim stays for as long as this attempt has not ended.
--
-- Waits for somebody who is just ending this attempt, but not for ever.
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
    RAISE EXCEPTION 'task %, attempt % is over on record, or is not held under claim %', $1, $2, $3
      USING ERRCODE = 'TE001', HINT = 'Roll back: nothing of this attempt counts.';
  END IF;
END $$;
