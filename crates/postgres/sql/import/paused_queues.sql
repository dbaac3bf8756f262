-- A queue that is paused here already stays so, for its own reason.
INSERT INTO task_engine.paused_queues (queue, reason, paused_at)
SELECT queue, reason, paused_at
FROM json_populate_recordset(NULL::task_engine.paused_queues, $1::text::json)
ON CONFLICT DO NOTHING
