-- name: schedule
-- One schedule, by its unique name, and the time: a row of nulls if there is none.
SELECT clock_timestamp() AS now, s.id, s.version, s.name, task_engine.readable(s.definition) AS definition, s.declared,
  s.overlap, s.anchor, s.paused_at, s.pause_reason, s.error, s.next_at, s.last_slot,
  s.last_task_id, s.created_at, s.updated_at
FROM (SELECT) AS always LEFT JOIN task_engine.schedules s ON s.name = $1;

-- name: schedules
-- A page of schedules, by the index on their names.
SELECT s.id, s.version, s.name, task_engine.readable(s.definition) AS definition, s.declared,
  s.overlap, s.anchor, s.paused_at, s.pause_reason, s.error, s.next_at, s.last_slot,
  s.last_task_id, s.created_at, s.updated_at FROM task_engine.schedules s
WHERE s.name > $1 ORDER BY s.name LIMIT $2;

-- name: insert
-- A new schedule. Nothing if the name is taken. Engines set their timers again.
WITH written AS (
  INSERT INTO task_engine.schedules
    (name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at,
     created_at, updated_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp(), clock_timestamp())
  ON CONFLICT (name) DO NOTHING
  RETURNING id
)
SELECT id, pg_notify('task-engine-schedule', '') FROM written;

-- name: update
-- Writes a schedule that has not changed since the writer read it. Should another be
-- writing it, this waits, looks at the version again, and changes nothing.
WITH written AS (
  UPDATE task_engine.schedules s SET
    version = s.version + 1, definition = $2, declared = $3, overlap = $4, anchor = $5,
    paused_at = $6, pause_reason = $7, error = $8, next_at = $9, updated_at = clock_timestamp()
  WHERE s.name = $1 AND s.id = $10 AND s.version = $11
  RETURNING s.id
)
SELECT id, pg_notify('task-engine-schedule', '') FROM written;

-- name: remove
-- Its slots go with it. Engines set their timers again.
WITH gone AS (
  DELETE FROM task_engine.schedules WHERE name = $1 RETURNING id
)
SELECT id, pg_notify('task-engine-schedule', '') FROM gone;

-- name: due
-- Schedules that are due, and when the next one will be: always at least one
-- row. By the index on next_at, which has no paused or broken ones. Those that
-- wait for a task to end are passed over, so that they never hide others; as
-- many as there are of them are looked at.
WITH moment AS MATERIALIZED (
  SELECT clock_timestamp() AS now
)
SELECT
  m.now,
  (SELECT (extract(epoch FROM min(n.next_at) - m.now) * 1000000)::bigint
   FROM task_engine.schedules n WHERE n.next_at > m.now) AS next_us,
  EXISTS (
    SELECT FROM task_engine.schedules b
    WHERE b.next_at <= m.now AND b.overlap = 'wait' AND task_engine.is_open(b.last_task_id)
  ) AS blocked,
  due.*
FROM moment m LEFT JOIN LATERAL (
  SELECT s.id, s.version, s.name, task_engine.readable(s.definition) AS definition, s.declared,
    s.overlap, s.anchor, s.paused_at, s.pause_reason, s.error, s.next_at, s.last_slot,
    s.last_task_id, s.created_at, s.updated_at,
    s.overlap = 'skip' AND task_engine.is_open(s.last_task_id) AS last_runs
  FROM task_engine.schedules s
  WHERE s.next_at <= m.now
    AND NOT (s.overlap = 'wait' AND task_engine.is_open(s.last_task_id))
  ORDER BY s.next_at LIMIT $1
) AS due ON true;

-- name: lock
-- The first step of firing: takes those schedules that still are what they were
-- when they were seen, and never waits. A transaction that holds one is firing or
-- changing it, so that it is no longer what was seen. Versions are looked at
-- again once a row is locked, should it have changed since the snapshot.
SELECT s.id FROM task_engine.schedules s
JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS seen(id, version, after)
  ON seen.id = s.id AND seen.version = s.version
WHERE s.id = ANY ($1) AND NOT (seen.after IS NOT NULL AND task_engine.is_open(seen.after))
FOR UPDATE OF s SKIP LOCKED;

-- name: fire
-- The last step of firing, in the transaction that has locked the schedules ($1
-- to $4) and created the tasks of the slots ($5 to $7): writes the slots down,
-- forgets old ones, and moves the schedules on.
WITH fired AS (
  INSERT INTO task_engine.fired_slots (schedule_id, slot, task_id, fired_at)
  SELECT f.id, f.slot, f.task_id, clock_timestamp()
  FROM unnest($5::bigint[], $6::timestamptz[], $7::bigint[]) AS f(id, slot, task_id)
), forgotten AS (
  DELETE FROM task_engine.fired_slots old
  USING unnest($1::bigint[]) AS moved(id)
  WHERE old.schedule_id = moved.id AND old.slot <= (
    SELECT k.slot FROM task_engine.fired_slots k WHERE k.schedule_id = moved.id
    ORDER BY k.slot DESC OFFSET $8 LIMIT 1)
)
UPDATE task_engine.schedules s SET
  version = s.version + 1, next_at = moved.next_at,
  last_slot = coalesce(moved.last_slot, s.last_slot),
  last_task_id = coalesce(moved.last_task_id, s.last_task_id)
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[], $4::bigint[])
  AS moved(id, next_at, last_slot, last_task_id)
WHERE s.id = moved.id;

-- name: skip
-- Records slots that do not fire, in the transaction that has locked their
-- schedules and before these are moved on. A range that goes on (the newest event
-- is of the same kind, and nothing has fired since) stays one row: a schedule of
-- every second whose task runs for a week does not write a row a second.
WITH skipped AS (
  SELECT s.*, e.id AS event_id,
    coalesce(e.kind = s.kind AND e.last_slot > coalesce(c.last_slot, '-infinity'), false) AS goes_on
  FROM unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::bigint[])
    AS s(schedule_id, kind, first_slot, last_slot, slots)
  JOIN task_engine.schedules c ON c.id = s.schedule_id
  LEFT JOIN LATERAL (
    SELECT n.id, n.kind, n.last_slot FROM task_engine.schedule_events n
    WHERE n.schedule_id = s.schedule_id ORDER BY n.id DESC LIMIT 1
  ) AS e ON true
), extended AS (
  UPDATE task_engine.schedule_events e
  SET last_slot = s.last_slot, slots = e.slots + s.slots, recorded_at = clock_timestamp()
  FROM skipped s WHERE s.goes_on AND e.id = s.event_id
), added AS (
  INSERT INTO task_engine.schedule_events (schedule_id, kind, first_slot, last_slot, slots, recorded_at)
  SELECT s.schedule_id, s.kind, s.first_slot, s.last_slot, s.slots, clock_timestamp()
  FROM skipped s WHERE NOT s.goes_on
)
DELETE FROM task_engine.schedule_events old
USING unnest($1::bigint[]) AS moved(id)
WHERE old.schedule_id = moved.id AND old.id <= (
  SELECT k.id FROM task_engine.schedule_events k WHERE k.schedule_id = moved.id
  ORDER BY k.id DESC OFFSET $6 LIMIT 1);

-- name: run
-- Records a task that was created outside of the slots of a schedule ($1), in the
-- transaction that has created it, and forgets old events. A schedule that has
-- been removed meanwhile has no history.
WITH added AS (
  INSERT INTO task_engine.schedule_events (schedule_id, kind, slots, task_id, requested_by, recorded_at)
  SELECT s.id, 'manual', 0, $2::bigint, $3::text, clock_timestamp()
  FROM task_engine.schedules s WHERE s.id = $1
  FOR KEY SHARE
)
DELETE FROM task_engine.schedule_events old
WHERE old.schedule_id = $1 AND old.id <= (
  SELECT k.id FROM task_engine.schedule_events k WHERE k.schedule_id = $1
  ORDER BY k.id DESC OFFSET $4 LIMIT 1);

-- name: fired_slots
-- The newest slots of a schedule, by the primary key.
SELECT slot, task_id, fired_at FROM task_engine.fired_slots
WHERE schedule_id = $1 ORDER BY slot DESC LIMIT $2;

-- name: schedule_events
-- The newest events of a schedule, by the index on (schedule_id, id).
SELECT kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at
FROM task_engine.schedule_events
WHERE schedule_id = $1 ORDER BY id DESC LIMIT $2;
