-- A page of schedules, by the index on their names.
SELECT s.id, s.version, s.name, task_engine.readable(s.definition) AS definition, s.declared,
  s.overlap, s.anchor, s.paused_at, s.pause_reason, s.error, s.next_at, s.last_slot,
  s.last_task_id, s.created_at, s.updated_at FROM task_engine.schedules s
WHERE s.name > $1 ORDER BY s.name LIMIT $2
