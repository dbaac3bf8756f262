-- One schedule, by its unique name, and the time: a row of nulls if there is none.
SELECT clock_timestamp() AS now, s.id, s.version, s.name, task_engine.readable(s.definition) AS definition, s.declared,
  s.overlap, s.anchor, s.paused_at, s.pause_reason, s.error, s.next_at, s.last_slot,
  s.last_task_id, s.created_at, s.updated_at
FROM (SELECT) AS always LEFT JOIN task_engine.schedules s ON s.name = $1
