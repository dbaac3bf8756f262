SELECT queue, reason, paused_at,
  greatest(0, extract(epoch FROM now() - paused_at) * 1000000)::bigint AS paused_us
FROM task_engine.paused_queues ORDER BY queue
