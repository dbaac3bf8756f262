-- Regular tasks: a slot fires once in the whole cluster, without a leader.

-- One row for each schedule. Every write and every processed slot make a new version; a
-- writer that has read an older one changes nothing.
CREATE TABLE task_engine.schedules (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  version bigint NOT NULL DEFAULT 1,
  -- The next slot that is not processed yet. Null: there is none.
  next_at timestamptz,
  anchor timestamptz NOT NULL,            -- where intervals are counted from
  last_slot timestamptz,
  last_task_id bigint,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  paused_at timestamptz,
  name text NOT NULL UNIQUE
    CONSTRAINT "a schedule needs a name of 1 to 200 bytes"
    CHECK (octet_length(name) BETWEEN 1 AND 200),
  overlap text NOT NULL
    CONSTRAINT "a schedule allows, skips or waits for overlapping tasks"
    CHECK (overlap IN ('allow', 'skip', 'wait')),
  definition jsonb NOT NULL
    CONSTRAINT "a schedule is within the limits of JSON"
    CHECK (pg_column_size(definition) < 200 AND octet_length(definition::text) < 130
      OR task_engine.check_json(definition, 'the schedule')),
  declared text,                          -- what an application declared last
  pause_reason text,
  error text,                             -- why it cannot fire
  CONSTRAINT "the texts of a schedule have at most 1 MiB"
    CHECK (greatest(octet_length(declared), octet_length(pause_reason), octet_length(error)) <= 1048576),
  CONSTRAINT "a schedule that is paused or has an error awaits no slot"
    CHECK (next_at IS NULL OR (paused_at IS NULL AND error IS NULL)),
  CONSTRAINT "no slot is awaited that has fired"
    CHECK (next_at > last_slot),
  -- A time that no clock can show would block all other schedules.
  CONSTRAINT "the times of a schedule are before the year 9999"
    CHECK (isfinite(anchor) AND isfinite(created_at) AND isfinite(updated_at)
      AND isfinite(coalesce(next_at, anchor)) AND isfinite(coalesce(last_slot, anchor))
      AND isfinite(coalesce(paused_at, anchor))
      AND greatest(anchor, next_at, last_slot, paused_at, created_at, updated_at) < '9999-01-01Z')
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- However many schedules there are, only those that are due are read.
CREATE INDEX schedules_by_next_at ON task_engine.schedules (next_at) WHERE next_at IS NOT NULL;

-- One row for each fired slot, written with its task. The primary key makes sure that a
-- slot fires once.
CREATE TABLE task_engine.fired_slots (
  -- Removed with it, also those of a firing that the removal had to wait for.
  schedule_id bigint NOT NULL REFERENCES task_engine.schedules ON DELETE CASCADE,
  slot timestamptz NOT NULL,
  task_id bigint NOT NULL,
  fired_at timestamptz NOT NULL,
  PRIMARY KEY (schedule_id, slot),
  CONSTRAINT "a slot is before the year 9999"
    CHECK (isfinite(slot) AND isfinite(fired_at) AND greatest(slot, fired_at) < '9999-01-01Z')
);
CREATE INDEX fired_slots_by_task ON task_engine.fired_slots (task_id);

-- Other events of a schedule: skipped slots, one row for each range, and tasks that
-- were created manually. The newest 100 of a schedule are kept.
CREATE TABLE task_engine.schedule_events (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  schedule_id bigint NOT NULL REFERENCES task_engine.schedules ON DELETE CASCADE,
  first_slot timestamptz,
  last_slot timestamptz,
  slots bigint NOT NULL CHECK (slots >= 0),
  task_id bigint,                         -- it may have been removed since
  recorded_at timestamptz NOT NULL,
  kind text NOT NULL,
  requested_by text,
  CONSTRAINT "an event of a schedule is of a known kind"
    CHECK (CASE WHEN kind = 'manual' THEN task_id IS NOT NULL AND first_slot IS NULL AND last_slot IS NULL
      ELSE kind IN ('skipped_missed', 'skipped_overlap') AND task_id IS NULL
        AND first_slot IS NOT NULL AND last_slot IS NOT NULL AND first_slot <= last_slot END),
  CONSTRAINT "an event of a schedule is before the year 9999"
    CHECK (isfinite(recorded_at) AND isfinite(coalesce(first_slot, recorded_at))
      AND isfinite(coalesce(last_slot, recorded_at))
      AND greatest(first_slot, last_slot, recorded_at) < '9999-01-01Z')
);
CREATE INDEX schedule_events_by_schedule ON task_engine.schedule_events (schedule_id, id);

-- Whether a task has not ended, in the snapshot of the calling statement: in every
-- snapshot a task has one status. A retried task waits or is held again; a task that
-- retention has removed has ended.
CREATE FUNCTION task_engine.is_open(task_id bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = $1)
    OR EXISTS (SELECT FROM task_engine.created_tasks c WHERE c.id = $1) AND (
      (SELECT e.ends_task FROM task_engine.ended_executions e
       WHERE e.task_id = $1 ORDER BY e.attempt DESC LIMIT 1) IS NULL
      OR EXISTS (SELECT FROM task_engine.held_attempts h WHERE h.task_id = $1))
$$;
