-- name: read_limits
-- All limits, with their version.
SELECT v.version, l.id, l.name, l.task_class, l.queue, l.options
FROM task_engine.limits_version v
LEFT JOIN task_engine.limits l ON true
ORDER BY l.id;

-- name: limited_targets
-- The classes and queues whose tasks are claimed by their limits.
SELECT task_class, queue, in_use FROM task_engine.limited_targets;

-- name: move_to_lanes
-- Moves due tasks from the lane of their class ($1 queue, $2 class, $3 priority) to the
-- lanes of their keys: $6 from its beginning, and $7 from its end, so that many tasks of one
-- key do not hide others. Returns the lanes with the last position of the beginning.
--
-- Index: waiting_tasks_by_lane.
WITH target AS MATERIALIZED (
  SELECT FROM task_engine.limited_targets t
  WHERE t.in_use
    AND (t.task_class = $2::text AND t.queue = '' OR t.task_class = '' AND t.queue = $1::text)
), first AS MATERIALIZED (
  SELECT w.ctid AS place, w.due_at, w.task_id FROM task_engine.waiting_tasks w
  WHERE w.queue = $1::text AND w.task_class = $2::text AND w.priority = $3::integer
    AND w.due_at <= now() AND (w.due_at, w.task_id) >= ($4::timestamptz, $5::bigint)
    AND EXISTS (SELECT FROM target)
  ORDER BY w.due_at, w.task_id LIMIT $6::bigint
  FOR UPDATE SKIP LOCKED
), last AS MATERIALIZED (
  SELECT w.ctid AS place FROM task_engine.waiting_tasks w
  WHERE w.queue = $1::text AND w.task_class = $2::text AND w.priority = $3::integer
    AND w.due_at <= now() AND (w.due_at, w.task_id) >= ($4::timestamptz, $5::bigint)
    AND EXISTS (SELECT FROM target)
  ORDER BY w.due_at DESC, w.task_id DESC LIMIT $7::bigint
  FOR UPDATE SKIP LOCKED
), taken AS (
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM first UNION SELECT place FROM last))
  RETURNING w.task_id, w.due_at, w.priority, w.attempt, w.retry_number, w.queue, w.task_class
), moved AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class, lane_key)
  SELECT t.task_id, t.due_at, t.priority, t.attempt, t.retry_number, chr(31) || t.queue,
    t.task_class, coalesce((
      SELECT jsonb_agg(
        jsonb_build_array(l.id, task_engine.limit_key(
          coalesce(nullif(c.context -> 'limits' -> l.name, 'null'), c.task_parameters -> (l.options ->> 'key'))))
        ORDER BY l.id)::text
      FROM task_engine.limits l
      WHERE l.task_class = $2::text OR l.queue = $1::text
        OR l.task_class IS NULL AND l.queue IS NULL AND c.context -> 'limits' ? l.name
    ), '[]')
  FROM taken t
  LEFT JOIN task_engine.created_tasks c ON c.id = t.task_id
  RETURNING lane_key
)
SELECT m.lane_key, m.tasks, f.due_at, f.task_id
FROM (SELECT lane_key, count(*) AS tasks FROM moved GROUP BY lane_key) AS m
CROSS JOIN (SELECT max(due_at) AS due_at, max(task_id) AS task_id FROM (
  SELECT due_at, task_id FROM first ORDER BY due_at DESC, task_id DESC LIMIT 1) AS f) AS f;

-- name: move_in_order
-- As move_to_lanes, for limits in order: only from the beginning ($7 is not used), and not
-- past a task that another transaction has locked. Two engines never move at once: the
-- second finds the first tasks locked.
WITH target AS MATERIALIZED (
  SELECT FROM task_engine.limited_targets t
  WHERE t.in_use
    AND (t.task_class = $2::text AND t.queue = '' OR t.task_class = '' AND t.queue = $1::text)
), candidates AS MATERIALIZED (
  SELECT w.ctid AS place, w.due_at, w.task_id FROM task_engine.waiting_tasks w
  WHERE w.queue = $1::text AND w.task_class = $2::text AND w.priority = $3::integer
    AND w.due_at <= now() AND (w.due_at, w.task_id) >= ($4::timestamptz, $5::bigint)
    AND EXISTS (SELECT FROM target) AND $7::bigint IS NOT NULL
  ORDER BY w.due_at, w.task_id LIMIT $6::bigint
), locked AS MATERIALIZED (
  SELECT w.ctid AS place, w.due_at, w.task_id FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM candidates))
  FOR UPDATE SKIP LOCKED
), skipped AS MATERIALIZED (
  SELECT c.due_at, c.task_id FROM candidates c
  WHERE NOT EXISTS (SELECT FROM locked l WHERE l.place = c.place)
  ORDER BY c.due_at, c.task_id LIMIT 1
), first AS MATERIALIZED (
  SELECT l.place, l.due_at, l.task_id FROM locked l
  WHERE NOT EXISTS (
    SELECT FROM skipped s WHERE (s.due_at, s.task_id) < (l.due_at, l.task_id))
), taken AS (
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM first))
  RETURNING w.task_id, w.due_at, w.priority, w.attempt, w.retry_number, w.queue, w.task_class
), moved AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class, lane_key)
  SELECT t.task_id, t.due_at, t.priority, t.attempt, t.retry_number, chr(31) || t.queue,
    t.task_class, task_engine.lane_key($2::text, $1::text, c.task_parameters, c.context)
  FROM taken t
  LEFT JOIN task_engine.created_tasks c ON c.id = t.task_id
  RETURNING lane_key
)
SELECT m.lane_key, m.tasks, f.due_at, f.task_id
FROM (SELECT lane_key, count(*) AS tasks FROM moved GROUP BY lane_key) AS m
CROSS JOIN (SELECT max(due_at) AS due_at, max(task_id) AS task_id FROM (
  SELECT due_at, task_id FROM first ORDER BY due_at DESC, task_id DESC LIMIT 1) AS f) AS f;

-- name: renew_lane
-- Gives tasks of a lane ($1 queue with its prefix, $2 class, $3 priority, $4 lane key) new
-- lane keys, because limits have changed since. In order ($6), not past a task that another
-- transaction has locked. Nothing if the limits have another version than $7: then this claimer
-- may know old ones, by which no lane is up to date. Returns the new lanes. Index:
-- waiting_tasks_by_limited_lane.
WITH candidates AS MATERIALIZED (
  SELECT w.ctid AS place, row_number() OVER (ORDER BY w.lane_key, w.due_at, w.task_id) AS number
  FROM task_engine.waiting_tasks w
  WHERE w.queue COLLATE "C" = $1::text AND w.task_class COLLATE "C" = $2::text AND w.priority = $3::integer
    AND w.lane_key BETWEEN $4::text AND $4::text
    AND EXISTS (SELECT FROM task_engine.limits_version v WHERE v.version = $7::bigint)
  ORDER BY w.lane_key, w.due_at, w.task_id LIMIT $5::bigint
), locked AS MATERIALIZED (
  SELECT w.ctid AS place FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM candidates))
  FOR UPDATE SKIP LOCKED
), first_skipped AS MATERIALIZED (
  SELECT min(c.number) AS number FROM candidates c
  WHERE $6::boolean AND NOT EXISTS (SELECT FROM locked l WHERE l.place = c.place)
), picked AS MATERIALIZED (
  SELECT c.place FROM candidates c JOIN locked l ON l.place = c.place
  WHERE c.number < coalesce((SELECT number FROM first_skipped), c.number + 1)
), taken AS (
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM picked))
  RETURNING w.task_id, w.due_at, w.priority, w.attempt, w.retry_number, w.queue, w.task_class
), moved AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class, lane_key)
  SELECT t.task_id, t.due_at, t.priority, t.attempt, t.retry_number, t.queue, t.task_class,
    task_engine.lane_key(t.task_class, substr(t.queue, 2), c.task_parameters, c.context)
  FROM taken t
  LEFT JOIN task_engine.created_tasks c ON c.id = t.task_id
  RETURNING lane_key
)
SELECT DISTINCT lane_key FROM moved;

-- name: limited_lanes
-- The next lanes ($5) of a queue (with its prefix), class and priority, after the lane key
-- $4, with the first task of each. A loose scan of waiting_tasks_by_limited_lane: one probe
-- for each lane, however many tasks wait in it.
WITH RECURSIVE lane AS (
  (
    SELECT w.lane_key, w.task_id, w.due_at, 1 AS number FROM task_engine.waiting_tasks w
    WHERE w.queue COLLATE "C" = $1::text AND w.task_class COLLATE "C" = $2::text AND w.priority = $3::integer
      AND w.lane_key > $4::text
    ORDER BY w.lane_key, w.due_at, w.task_id LIMIT 1
  )
  UNION ALL
  SELECT next.lane_key, next.task_id, next.due_at, lane.number + 1
  FROM lane
  CROSS JOIN LATERAL (
    SELECT w.lane_key, w.task_id, w.due_at FROM task_engine.waiting_tasks w
    WHERE w.queue COLLATE "C" = $1::text AND w.task_class COLLATE "C" = $2::text AND w.priority = $3::integer
      AND w.lane_key > lane.lane_key
    ORDER BY w.lane_key, w.due_at, w.task_id LIMIT 1
  ) AS next
  WHERE lane.number < $5::integer
)
SELECT lane_key, task_id, due_at FROM lane;

-- name: new_lanes
-- The first lanes ($6) between each two of these lane keys ($4, $5), without these, and with the
-- first task of each. One probe for each gap without a lane.
SELECT new.lane_key, new.task_id, new.due_at
FROM unnest($4::text[], $5::text[]) AS gap(after, before)
CROSS JOIN LATERAL (
  WITH RECURSIVE lane AS (
    (
      SELECT w.lane_key, w.task_id, w.due_at, 1 AS number FROM task_engine.waiting_tasks w
      WHERE w.queue COLLATE "C" = $1::text AND w.task_class COLLATE "C" = $2::text AND w.priority = $3::integer
        AND w.lane_key > gap.after AND w.lane_key < gap.before
      ORDER BY w.lane_key, w.due_at, w.task_id LIMIT 1
    )
    UNION ALL
    SELECT next.lane_key, next.task_id, next.due_at, lane.number + 1
    FROM lane
    CROSS JOIN LATERAL (
      SELECT w.lane_key, w.task_id, w.due_at FROM task_engine.waiting_tasks w
      WHERE w.queue COLLATE "C" = $1::text AND w.task_class COLLATE "C" = $2::text AND w.priority = $3::integer
        AND w.lane_key > lane.lane_key AND w.lane_key < gap.before
      ORDER BY w.lane_key, w.due_at, w.task_id LIMIT 1
    ) AS next
    WHERE lane.number < $6::integer
  )
  SELECT lane_key, task_id, due_at FROM lane
) AS new;

-- name: named_lanes
-- The first task of each of these lanes ($4) that has one at or after a position ($5, $6). The
-- collation and the range of lane keys fit only the index of these lanes: without statistics the
-- server may choose the other one, and read all tasks of another lane. The position keeps dead
-- rows before it from being read.
SELECT lane.lane_key, head.task_id, head.due_at
FROM unnest($4::text[], $5::timestamptz[], $6::bigint[]) AS lane(lane_key, from_due_at, from_id)
CROSS JOIN LATERAL (
  SELECT w.task_id, w.due_at FROM task_engine.waiting_tasks w
  WHERE w.queue COLLATE "C" = $1::text AND w.task_class COLLATE "C" = $2::text AND w.priority = $3::integer
    AND (w.lane_key, w.due_at, w.task_id) >= (lane.lane_key, lane.from_due_at, lane.from_id)
    AND w.lane_key <= lane.lane_key
  ORDER BY w.lane_key, w.due_at, w.task_id LIMIT 1
) AS head;

-- name: add_limit_keys
-- The first row of keys that have none. In order: two claims wait for each other's rows.
INSERT INTO task_engine.limit_keys (limit_id, key, total, written_at, task_ids, attempts)
SELECT p.limit_id, p.key, 0, clock_timestamp(), '{}'::bigint[], '{}'::integer[]
FROM (SELECT DISTINCT limit_id, key FROM unnest($1::integer[], $2::text[]) AS p(limit_id, key)) AS p
WHERE (
  SELECT k.limit_id FROM task_engine.limit_keys k
  WHERE k.limit_id = p.limit_id AND k.key = p.key LIMIT 1) IS NULL
ORDER BY p.limit_id, p.key
ON CONFLICT DO NOTHING;

-- name: limit_key_states
-- The state of keys ($1, $2): the newest row, the holders whose attempts have not ended, and
-- for keys with a rate ($3, or 0) as many recent starts as the claim may need ($5). For keys
-- in order ($4), the task that has the key, unless an edit gave it another one. A task that retention has removed has ended.
--
-- Not EXISTS: the server may read a whole table for that.
SELECT p.place, (SELECT v.version FROM task_engine.limits_version v) AS version,
  k.total, k.written_at, held.task_ids, held.attempts,
  CASE WHEN p.in_order AND NOT task_engine.has_ended(k.task_ids[1]) AND (
    SELECT task_engine.task_keys(c.task_class, c.queue, c.task_parameters, c.context)::jsonb
      @> jsonb_build_array(jsonb_build_array(p.limit_id, p.key))
    FROM task_engine.created_tasks c WHERE c.id = k.task_ids[1]
  ) THEN k.task_ids[1] END AS held_by,
  k.attempts[1] AS held_attempt,
  recent.totals, recent.ago_us, newest.ago_us AS last_start_us,
  (extract(epoch FROM c.closed_until - clock_timestamp()) * 1000000)::bigint AS closed_us,
  newest.started_until, c.closed_until, c.reason
FROM unnest($1::integer[], $2::text[], $3::bigint[], $4::boolean[]) WITH ORDINALITY
  AS p(limit_id, key, rate_max, in_order, place)
LEFT JOIN LATERAL (
  SELECT k.total, k.written_at, k.task_ids, k.attempts FROM task_engine.limit_keys k
  WHERE k.limit_id = p.limit_id AND k.key = p.key
  ORDER BY k.total DESC LIMIT 1
) AS k ON true
LEFT JOIN LATERAL (
  SELECT array_agg(h.task_id) AS task_ids, array_agg(h.attempt) AS attempts
  FROM unnest(k.task_ids, k.attempts) AS h(task_id, attempt)
  WHERE (SELECT e.task_id FROM task_engine.ended_executions e
         WHERE e.task_id = h.task_id AND e.attempt = h.attempt) IS NULL
    AND (SELECT c.id FROM task_engine.created_tasks c WHERE c.id = h.task_id) IS NOT NULL
) AS held ON true
LEFT JOIN LATERAL (
  SELECT array_agg(s.total ORDER BY s.total) AS totals,
    array_agg((extract(epoch FROM clock_timestamp() - s.started_until) * 1000000)::bigint
      ORDER BY s.total) AS ago_us
  FROM (
    SELECT s.total, s.started_until FROM task_engine.limit_starts s
    WHERE p.rate_max > 0
      AND s.limit_id = p.limit_id AND s.key = p.key AND s.total > k.total - p.rate_max
    ORDER BY s.total LIMIT $5::bigint
  ) AS s
) AS recent ON true
LEFT JOIN LATERAL (
  SELECT s.started_until,
    (extract(epoch FROM clock_timestamp() - s.started_until) * 1000000)::bigint AS ago_us
  FROM task_engine.limit_starts s
  WHERE p.rate_max > 0 AND s.limit_id = p.limit_id AND s.key = p.key
  ORDER BY s.total DESC LIMIT 1
) AS newest ON true
LEFT JOIN LATERAL (
  SELECT c.closed_until, c.reason FROM task_engine.closed_keys c
  WHERE c.limit_id = p.limit_id AND c.key = p.key AND c.closed_until > clock_timestamp()
  LIMIT 1
) AS c ON true
ORDER BY p.place;

-- name: correct_starts
-- Starts of keys ($1, $2) that are further in the future than an attempt may take to start ($3,
-- in microseconds) were recorded before the clock was set back. They are moved to the latest
-- time that is possible now. A row that another session has locked is left to it.
UPDATE task_engine.limit_starts s
SET started_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE s.ctid = ANY (ARRAY(
  SELECT s.ctid FROM unnest($1::integer[], $2::text[]) AS p(limit_id, key)
  JOIN task_engine.limit_starts s ON s.limit_id = p.limit_id AND s.key = p.key
  WHERE s.started_until > clock_timestamp() + $3::bigint * interval '1 microsecond'
  FOR UPDATE OF s SKIP LOCKED))
RETURNING s.limit_id;

-- name: claim_limited
-- Takes tasks from lanes, as many as the decision about their limits allows, and holds them
-- under claim $1 of instance $2.
--
--   $3               the version of the limits that the decision is made with
--   $4 to $10        lanes: queue (with its prefix), class, priority, lane key, how many
--                    tasks, the only task that may be taken (0: any), and the numbers of the
--                    keys that it needs ('1,3')
--   $11 to $17       keys: limit, key, total and time of the row that was read; how many
--                    starts its rate allows, and the time for a start in microseconds (null
--                    without a rate); whether holders are counted
--   $18, $19         of each key, the holders that have not ended: tasks and attempts ('7,9')
--   $20, $21         of each lane, the first task that was read: dead rows before it are not
--                    read again
--
-- A key whose row was replaced or is locked by another claim is left out, with its lanes.
-- So the state that was read still holds: attempts may only have ended since. What is known
-- about a key is read by its number from the arrays: joins would compare each with each. Lane
-- keys are a range, as in named_lanes.
WITH alive AS MATERIALIZED (
  SELECT FROM task_engine.instances
  WHERE id = $2 AND stopped_at IS NULL AND lost_at IS NULL
), current AS MATERIALIZED (
  SELECT FROM task_engine.limits_version v
  WHERE v.version = $3::bigint AND EXISTS (SELECT FROM alive)
), keys AS MATERIALIZED (
  SELECT p.number
  FROM unnest($11::integer[], $12::text[], $13::bigint[], $14::timestamptz[]) WITH ORDINALITY
    AS p(limit_id, key, total, written_at, number)
  JOIN task_engine.limit_keys k ON k.limit_id = p.limit_id AND k.key = p.key
    AND k.total = p.total AND k.written_at = p.written_at
  WHERE EXISTS (SELECT FROM current)
  FOR UPDATE OF k SKIP LOCKED
), lanes AS MATERIALIZED (
  SELECT lane.queue, lane.task_class, lane.priority, lane.lane_key, lane.tasks, lane.only_task,
    lane.from_due_at, lane.from_id, string_to_array(lane.needs, ',')::bigint[] AS needs
  FROM unnest($4::text[], $5::text[], $6::integer[], $7::text[], $8::bigint[], $9::bigint[],
    $10::text[], $20::timestamptz[], $21::bigint[])
    AS lane(queue, task_class, priority, lane_key, tasks, only_task, needs, from_due_at, from_id)
  WHERE EXISTS (SELECT FROM current)
    AND ((SELECT count(*) FROM keys) = cardinality($11::integer[])
      OR string_to_array(lane.needs, ',')::bigint[] <@ ARRAY(SELECT k.number FROM keys k))
    AND lane.queue <> ALL (ARRAY(SELECT chr(31) || p.queue FROM task_engine.paused_queues p))
), picked AS MATERIALIZED (
  SELECT w.place, w.task_id, w.attempt, lane.needs
  FROM lanes lane
  CROSS JOIN LATERAL (
    SELECT w.ctid AS place, w.task_id, w.attempt FROM task_engine.waiting_tasks w
    WHERE w.queue COLLATE "C" = lane.queue AND w.task_class COLLATE "C" = lane.task_class AND w.priority = lane.priority
      AND (w.lane_key, w.due_at, w.task_id) >= (lane.lane_key, lane.from_due_at, lane.from_id)
      AND w.lane_key <= lane.lane_key AND w.due_at <= now()
      AND (lane.only_task = 0 OR w.task_id = lane.only_task)
    ORDER BY w.lane_key, w.due_at, w.task_id LIMIT lane.tasks
    FOR UPDATE SKIP LOCKED
  ) AS w
), taken AS (
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.ctid = ANY (ARRAY(SELECT place FROM picked))
  RETURNING w.task_id, w.due_at, w.attempt, w.retry_number, w.queue, w.task_class, w.lane_key
), counted AS MATERIALIZED (
  SELECT n.key, count(*) AS tasks, array_agg(p.task_id) AS task_ids,
    array_agg(p.attempt) AS attempts
  FROM picked p CROSS JOIN LATERAL unnest(p.needs) AS n(key)
  GROUP BY n.key
), replaced AS (
  DELETE FROM task_engine.limit_keys k USING counted c
  WHERE k.limit_id = ($11::integer[])[c.key] AND k.key = ($12::text[])[c.key]
    AND k.total = ($13::bigint[])[c.key]
), stated AS (
  INSERT INTO task_engine.limit_keys (limit_id, key, total, written_at, task_ids, attempts)
  SELECT ($11::integer[])[c.key], ($12::text[])[c.key], ($13::bigint[])[c.key] + c.tasks,
    clock_timestamp(),
    CASE WHEN ($17::boolean[])[c.key]
      THEN string_to_array(($18::text[])[c.key], ',')::bigint[] || c.task_ids ELSE '{}' END,
    CASE WHEN ($17::boolean[])[c.key]
      THEN string_to_array(($19::text[])[c.key], ',')::integer[] || c.attempts ELSE '{}' END
  FROM counted c
), started AS (
  INSERT INTO task_engine.limit_starts (limit_id, key, total, started_until)
  SELECT ($11::integer[])[c.key], ($12::text[])[c.key], ($13::bigint[])[c.key] + c.tasks,
    clock_timestamp() + ($16::bigint[])[c.key] * interval '1 microsecond'
  FROM counted c WHERE ($16::bigint[])[c.key] IS NOT NULL
), past AS (
  DELETE FROM task_engine.limit_starts s USING counted c
  WHERE ($16::bigint[])[c.key] IS NOT NULL
    AND s.limit_id = ($11::integer[])[c.key] AND s.key = ($12::text[])[c.key]
    AND s.total <= ($13::bigint[])[c.key] + c.tasks - ($15::bigint[])[c.key]
), held AS (
  INSERT INTO task_engine.claims (id, instance_id, claimed_at, task_ids, attempts, retry_numbers)
  SELECT $1, $2, clock_timestamp(), array_agg(t.task_id ORDER BY t.task_id),
    array_agg(t.attempt ORDER BY t.task_id), array_agg(t.retry_number ORDER BY t.task_id)
  FROM taken t
  HAVING count(*) > 0
)
SELECT
  EXISTS (SELECT FROM alive) AS alive,
  t.task_id, t.attempt, t.retry_number, t.task_class, substr(t.queue, 2), t.due_at,
  c.task_parameters, c.context, NULL::text AS unreadable,
  t.lane_key, EXISTS (SELECT FROM current) AS current
FROM (VALUES (1)) AS always(one)
LEFT JOIN taken t ON true
LEFT JOIN task_engine.created_tasks c ON c.id = t.task_id
ORDER BY t.due_at, t.task_id;

-- name: close_limit_keys
-- Closes keys, for the longer time if one is closed already.
INSERT INTO task_engine.closed_keys AS c (limit_id, key, closed_until, reason)
SELECT DISTINCT ON (p.limit_id, p.key) p.limit_id, p.key,
  clock_timestamp() + p.closed_for_us * interval '1 microsecond', p.reason
FROM unnest($1::integer[], $2::text[], $3::bigint[], $4::text[]) AS p(limit_id, key, closed_for_us, reason)
ORDER BY p.limit_id, p.key, p.closed_for_us DESC
ON CONFLICT (limit_id, key) DO UPDATE
SET closed_until = excluded.closed_until, reason = excluded.reason
WHERE c.closed_until < excluded.closed_until;

-- name: wake_limited
-- Notifies engines with idle claimers.
SELECT task_engine.wake('');

-- name: declare_limits
SELECT name, outcome FROM task_engine.declare_limits($1, $2, $3, $4, $5);

-- name: prune_limit_keys
-- Removes keys that are not in use, and everything about removed limits.
SELECT task_engine.prune_limits($1);

-- name: holder_lanes
-- The lanes in which tasks wait that have a key in order.
SELECT w.task_id, w.lane_key FROM task_engine.waiting_tasks w
WHERE w.task_id = ANY ($1::bigint[]) AND w.queue = $2::text AND w.task_class = $3::text
  AND w.priority = $4::integer AND w.lane_key IS NOT NULL;

-- name: keys_in_order
-- The keys of tasks ($2) of lanes in order ($1), or of the tasks that have the keys of those
-- lanes, if these wait there: what decides about the lanes.
SELECT lane.lane_key, c.id AS task_id,
  coalesce(task_engine.task_keys(c.task_class, c.queue, c.task_parameters, c.context), '[]') AS keys
FROM unnest($1::text[], $2::bigint[]) AS lane(lane_key, first)
CROSS JOIN LATERAL (
  SELECT coalesce((
    SELECT w.task_id
    FROM jsonb_array_elements(lane.lane_key::jsonb) AS p(key)
    CROSS JOIN LATERAL (
      SELECT k.task_ids FROM task_engine.limit_keys k
      WHERE k.limit_id = (p.key ->> 0)::integer AND k.key = p.key ->> 1
      ORDER BY k.total DESC LIMIT 1
    ) AS k
    JOIN task_engine.waiting_tasks w ON w.task_id = k.task_ids[1] AND w.lane_key = lane.lane_key
    WHERE NOT task_engine.has_ended(k.task_ids[1])
    LIMIT 1
  ), lane.first) AS task_id
) AS decides
JOIN task_engine.created_tasks c ON c.id = decides.task_id;
