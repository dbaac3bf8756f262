-- Where do lanes that are known begin now, from a position ($4, $5) on? Finds
-- neither new lanes nor what has come in before the positions, so it is no
-- ground to sleep on; but it does not read the dead rows before them, which
-- vacuum cannot remove while somebody holds an old snapshot.
SELECT lane.place, head.due_at, head.task_id,
  CASE WHEN head.due_at <= clock_timestamp() THEN 0
    WHEN head.due_at IS NOT NULL THEN (extract(epoch FROM least(head.due_at, '9999-01-01Z') - clock_timestamp()) * 1000000)::bigint
  END AS due_in_us
FROM unnest($1::text[], $2::text[], $3::integer[], $4::timestamptz[], $5::bigint[])
  WITH ORDINALITY AS lane(queue, task_class, priority, from_due_at, from_id, place)
LEFT JOIN LATERAL (
  SELECT w.due_at, w.task_id FROM task_engine.waiting_tasks w
  WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority = lane.priority
    AND (w.due_at, w.task_id) >= (lane.from_due_at, lane.from_id)
    AND lane.queue <> ALL (ARRAY(SELECT p.queue FROM task_engine.paused_queues p))
  ORDER BY w.due_at, w.task_id LIMIT 1
) AS head ON true
ORDER BY lane.place
