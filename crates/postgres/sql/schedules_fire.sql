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
WHERE s.id = moved.id
