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
  ORDER BY k.id DESC OFFSET $6 LIMIT 1)
