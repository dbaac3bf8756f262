INSERT INTO task_engine.fired_slots (schedule_id, slot, task_id, fired_at)
SELECT schedule_id, slot, task_id, fired_at
FROM json_populate_recordset(NULL::task_engine.fired_slots, $1::text::json)
