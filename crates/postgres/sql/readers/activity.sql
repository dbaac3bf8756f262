-- name: activity_held
-- As many rows as there are busy workers, each by its key.
SELECT h.task_id, h.attempt, h.instance_id, h.claimed_at, c.task_class, c.queue, c.priority,
  p.percent, p.message, p.reported_at
FROM task_engine.held_attempts h
JOIN task_engine.created_tasks c ON c.id = h.task_id
LEFT JOIN task_engine.execution_progress p ON p.task_id = h.task_id AND p.attempt = h.attempt
ORDER BY h.claimed_at, h.task_id;

-- name: activity_newest
-- One probe at the end of the primary key.
SELECT now() AS now, (SELECT max(id) FROM task_engine.created_tasks) AS newest;

-- name: activity_next
-- The first $1 tasks of each of the first $2 lanes that are due within $3
-- microseconds, $4 in all. One probe finds a lane, and each is read from its beginning
-- (waiting_tasks_by_lane). Tasks in the lanes of keys are in a queue with a prefix; so are
-- blocked tasks, which are not next.
WITH RECURSIVE lane AS (
  (SELECT queue, task_class, priority, 1 AS place FROM task_engine.waiting_tasks
   ORDER BY queue, task_class, priority LIMIT 1)
  UNION ALL
  SELECT head.queue, head.task_class, head.priority, lane.place + 1
  FROM lane CROSS JOIN LATERAL (
    SELECT w.queue, w.task_class, w.priority FROM task_engine.waiting_tasks w
    WHERE (w.queue, w.task_class, w.priority) > (lane.queue, lane.task_class, lane.priority)
    ORDER BY w.queue, w.task_class, w.priority LIMIT 1
  ) AS head
  WHERE lane.place < $2::integer
)
SELECT ltrim(lane.queue, chr(31)) AS queue, lane.task_class, lane.priority, first.task_id, first.due_at
FROM lane CROSS JOIN LATERAL (
  SELECT w.task_id, w.due_at FROM task_engine.waiting_tasks w
  WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority = lane.priority
    AND w.due_at <= now() + $3::bigint * interval '1 microsecond'
  ORDER BY w.due_at, w.task_id LIMIT $1::bigint
) AS first
WHERE NOT starts_with(lane.queue, chr(30))
LIMIT $4::bigint;

-- name: endings
-- Attempts that ended within $4 microseconds, of the tasks from $1 to $2 (side by
-- side), up to $3 of each pair. Ranges of the primary key, read from their ends;
-- the rest by keys. A snooze is no error.
SELECT DISTINCT ON (e.stopped_at, e.task_id, e.attempt)
  e.task_id, e.attempt, c.task_class, c.queue, e.instance_id, i.name AS instance,
  e.started_at, e.stopped_at, e.ends_task::text, e.retry_at,
  CASE WHEN e.ends_task IS NOT NULL OR shown.error->>'exception' IS DISTINCT FROM 'Snoozed'
    THEN left(coalesce((shown.error->>'exception') || ': ' || (shown.error->>'message'), shown.error::text), 500)
  END AS error
FROM unnest($1::bigint[], $2::bigint[]) AS place(low, high)
CROSS JOIN LATERAL (
  SELECT * FROM task_engine.ended_executions near
  WHERE near.task_id BETWEEN place.low AND place.high
  ORDER BY near.task_id DESC, near.attempt DESC LIMIT $3::bigint
) AS e
CROSS JOIN LATERAL (SELECT task_engine.readable(e.error) AS error) AS shown
JOIN task_engine.created_tasks c ON c.id = e.task_id
LEFT JOIN task_engine.instances i ON i.id = e.instance_id
WHERE e.stopped_at >= now() - $4::bigint * interval '1 microsecond'
ORDER BY e.stopped_at, e.task_id, e.attempt;

-- name: failure_counts
-- How many tasks have failed, and how many were cancelled, up to $1: what ended
-- so and was not sent back. Reads the partial index ended_executions_failed_or_cancelled
-- and probes keys; of those that were sent back, what is held now is few, and is
-- taken off afterwards. The status is no column: a type of our own would have
-- to be asked for, by a prepared statement.
SELECT
  (SELECT count(*) FROM (
    SELECT FROM task_engine.ended_executions e
    WHERE e.ends_task IN ('failed', 'cancelled') AND e.ends_task = status
      AND NOT EXISTS (SELECT FROM task_engine.ended_executions later
                      WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
      AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
    LIMIT $1::bigint) AS some_of_it)
  - (SELECT count(*) FROM task_engine.held_attempts h
     CROSS JOIN LATERAL (
       SELECT e.ends_task FROM task_engine.ended_executions e
       WHERE e.task_id = h.task_id ORDER BY e.attempt DESC LIMIT 1
     ) AS last
     WHERE last.ends_task = status) AS seen
FROM unnest('{failed, cancelled}'::task_engine.task_status[]) AS status;

-- name: queue_position
-- How many due tasks of these queues ($2) and classes ($3) are claimed before the
-- waiting task $1, each lane counted up to $4. A lane of a higher priority is
-- counted up to now, one of the same up to the task: ranges of
-- waiting_tasks_by_lane; each step of the recursion is one probe in it. Tasks in the lanes
-- of keys are in a queue with a prefix.
WITH RECURSIVE me AS (
  SELECT task_id, due_at, priority FROM task_engine.waiting_tasks WHERE task_id = $1
), lane AS (
  SELECT q.queue, k.task_class, (
    SELECT max(w.priority) FROM task_engine.waiting_tasks w
    WHERE w.queue = q.queue AND w.task_class = k.task_class) AS priority
  FROM (SELECT unnest($2::text[]) UNION ALL SELECT chr(31) || unnest($2::text[])) AS q(queue)
  CROSS JOIN unnest($3::text[]) AS k(task_class)
  WHERE NOT EXISTS (
    SELECT FROM task_engine.paused_queues p WHERE p.queue = ltrim(q.queue, chr(31)))
  UNION ALL
  SELECT lane.queue, lane.task_class, (
    SELECT max(w.priority) FROM task_engine.waiting_tasks w
    WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority < lane.priority)
  FROM lane CROSS JOIN me WHERE lane.priority > me.priority
)
SELECT NULL::bigint AS seen FROM me
UNION ALL
SELECT before.seen FROM me
CROSS JOIN LATERAL (
  SELECT lane.queue, lane.task_class, lane.priority,
    CASE WHEN lane.priority > me.priority THEN now() ELSE least(me.due_at, now()) END AS due_at,
    CASE WHEN lane.priority > me.priority THEN 9223372036854775807 ELSE me.task_id END AS task_id
  FROM lane WHERE lane.priority >= me.priority
) AS up_to
CROSS JOIN LATERAL (
  SELECT count(*) AS seen FROM (
    SELECT FROM task_engine.waiting_tasks w
    WHERE w.queue = up_to.queue AND w.task_class = up_to.task_class
      AND w.priority = up_to.priority AND (w.due_at, w.task_id) < (up_to.due_at, up_to.task_id)
    LIMIT $4::bigint) AS some_of_it
) AS before;

-- name: locked_by
-- Who has locked a waiting task: its row has the number of their transaction, and
-- a transaction holds a lock on its own number while it is open.
SELECT a.pid, coalesce(a.usename, '') AS username, coalesce(a.application_name, '') AS application,
  coalesce(a.state, '') AS state, a.xact_start AS since, a.query_start AS query_since,
  CASE WHEN a.xact_start IS NOT NULL
    THEN greatest(0, extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint
  END AS age_us,
  ARRAY[]::text[] AS locks, 0::bigint AS waiting
FROM task_engine.waiting_tasks w
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = w.xmax
  AND l.mode = 'ExclusiveLock' AND l.granted
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE w.task_id = $1
LIMIT 1;
