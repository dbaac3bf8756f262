INSERT INTO task_engine.schedule_events
  (schedule_id, kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at)
SELECT schedule_id, kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at
FROM json_populate_recordset(NULL::task_engine.schedule_events, $1::text::json)
