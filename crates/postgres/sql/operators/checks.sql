-- name: broken_schedules
SELECT name, error FROM task_engine.schedules WHERE error IS NOT NULL ORDER BY name LIMIT 100;

-- name: distributed
-- Tables of schema $1 that Citus has distributed.
SELECT c.relname::text AS name FROM pg_catalog.pg_dist_partition p
JOIN pg_class c ON c.oid = p.logicalrel WHERE c.relnamespace = $1::text::regnamespace
ORDER BY 1;

-- name: failed
-- Of the last $1 tasks that failed, those of the last hour that are still failed, by class.
-- By the index ended_executions_failed_or_cancelled.
WITH last AS MATERIALIZED (
  SELECT e.task_id, e.stopped_at FROM task_engine.ended_executions e
  WHERE e.ends_task IN ('failed', 'cancelled') AND e.ends_task = 'failed'
  ORDER BY e.task_id DESC LIMIT $1
)
SELECT t.task_class, count(*) AS failed, max(t.id) AS newest
FROM (SELECT DISTINCT task_id FROM last WHERE stopped_at >= now() - interval '1 hour') AS recent
JOIN task_engine.tasks t ON t.id = recent.task_id
WHERE t.status = 'failed'
GROUP BY t.task_class;

-- name: hidden_sessions
-- Sessions of other users in this database whose transactions this user may not see.
SELECT count(*) AS hidden, current_user::text AS name FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND a.query = '<insufficient privilege>'
  AND coalesce(a.backend_type, 'client backend') = 'client backend';

-- name: lanes
-- The first $1 queues and classes that have waiting tasks, and for how long the
-- first of each has been due. One probe of waiting_tasks_by_lane finds a lane,
-- one more its first task. Tasks in the lanes of keys are in a queue with a prefix; so are
-- blocked tasks, which are left out.
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
  WHERE lane.place < $1::integer
)
SELECT ltrim(lane.queue, chr(31)) AS queue, lane.task_class,
  (extract(epoch FROM max(now() - head.due_at) FILTER (WHERE head.due_at <= now())) * 1000000)::bigint
    AS due_for_us
FROM lane CROSS JOIN LATERAL (
  SELECT w.due_at FROM task_engine.waiting_tasks w
  WHERE w.queue = lane.queue AND w.task_class = lane.task_class AND w.priority = lane.priority
  ORDER BY w.due_at LIMIT 1
) AS head
WHERE NOT starts_with(lane.queue, chr(30))
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: late_schedules
-- By schedules_by_next_at; the last task is looked for only where it matters.
SELECT s.name, (extract(epoch FROM now() - s.next_at) * 1000000)::bigint AS late_us,
  s.overlap = 'wait' AND coalesce(task_engine.is_open(s.last_task_id), false) AS waits
FROM task_engine.schedules s WHERE s.next_at <= now() ORDER BY s.next_at LIMIT 100;

-- name: objects
-- The objects of schema $1, as the server prints them. Options of tables are left out,
-- because operators may tune them.
SELECT 'table' AS kind, c.relname::text AS name,
  (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
      || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
      || CASE WHEN a.attidentity <> '' THEN ' GENERATED AS IDENTITY' ELSE '' END
      || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), ''), ', ' ORDER BY a.attname)
   FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS definition
FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'r'
UNION ALL
SELECT 'constraint', r.relname || '.' || c.conname,
  format('ALTER TABLE %s ADD CONSTRAINT %I %s', r.oid::regclass, c.conname, pg_get_constraintdef(c.oid))
FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
WHERE c.connamespace = $1::text::regnamespace AND c.contype <> 'n'
UNION ALL
SELECT 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
  || CASE WHEN i.indisvalid THEN '' ELSE ' -- not valid' END
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = $1::text::regnamespace
  AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid)
UNION ALL
SELECT 'view', c.relname::text, format('CREATE OR REPLACE VIEW %s AS %s', c.oid::regclass, pg_get_viewdef(c.oid))
FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'v'
UNION ALL
SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace AND p.prokind = 'f'
UNION ALL
SELECT 'trigger', c.relname || '.' || t.tgname, pg_get_triggerdef(t.oid)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = $1::text::regnamespace AND NOT t.tgisinternal
UNION ALL
SELECT 'type', t.typname::text,
  (SELECT string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid)
FROM pg_type t WHERE t.typnamespace = $1::text::regnamespace AND t.typtype = 'e'
ORDER BY 1, 2;

-- name: pauses
SELECT queue, reason, paused_at,
  greatest(0, extract(epoch FROM now() - paused_at) * 1000000)::bigint AS paused_us
FROM task_engine.paused_queues ORDER BY queue;

-- name: relation_kinds
-- Tables of schema $1 that are not ordinary ones, and whether Citus is there.
SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL AS has_citus,
  ARRAY(SELECT c.relname || CASE c.relkind WHEN 'p' THEN ' (partitioned)' ELSE ' (foreign)' END
        FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('p', 'f')
        ORDER BY 1) AS odd;

-- name: sequences
-- How much of each sequence is used.
SELECT sequencename AS name, coalesce(last_value, 0)::double precision / max_value AS used
FROM pg_sequences WHERE schemaname = $1 ORDER BY used DESC;

-- name: server
-- The settings and limits of the server and of this session.
SELECT current_setting('server_version_num')::integer AS version_number,
  current_setting('server_version') AS version,
  pg_is_in_recovery() AS is_standby,
  current_setting('default_transaction_read_only')::boolean AS is_read_only,
  current_setting('fsync')::boolean AS fsync,
  current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('full_page_writes')::boolean AS full_page_writes,
  current_setting('autovacuum')::boolean AS autovacuum,
  clock_timestamp() AS now,
  current_setting('max_connections')::bigint AS connections_max,
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
  (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database())::bigint AS transaction_age,
  current_setting('autovacuum_freeze_max_age')::bigint AS freeze_age_max;

-- name: transactions
-- Transactions of others in this database, the oldest first: what they lock of
-- ours, and who waits for them. A user without pg_read_all_stats sees of other
-- users' sessions no times and no state, but all locks.
SELECT a.pid, coalesce(a.usename, '') AS username, coalesce(a.application_name, '') AS application,
  coalesce(a.state, '') AS state, a.xact_start AS since, a.query_start AS query_since,
  CASE WHEN a.xact_start IS NOT NULL
    THEN greatest(0, extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint
  END AS age_us,
  a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL AS holds_rows, locked.locks,
  (SELECT count(*) FROM pg_stat_activity b
   WHERE b.wait_event_type = 'Lock' AND a.pid = ANY (pg_blocking_pids(b.pid))) AS waiting
FROM pg_stat_activity a CROSS JOIN LATERAL (
  SELECT ARRAY(
    SELECT DISTINCT c.relname || ' (' || l.mode || ')' FROM pg_locks l
    JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE l.pid = a.pid AND l.granted AND n.nspname = $1 AND c.relkind = 'r'
      AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    ORDER BY 1
  ) AS locks
) AS locked
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND coalesce(a.backend_type, 'client backend') = 'client backend'
  AND (a.xact_start IS NOT NULL OR cardinality(locked.locks) > 0)
ORDER BY a.xact_start
LIMIT 100;

-- name: vacuum
-- Dead rows of our tables, as the statistics have them: nothing is counted.
SELECT s.relname AS name, s.n_live_tup AS live, s.n_dead_tup AS dead,
  extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::bigint AS vacuumed_secs,
  coalesce(c.reloptions::text LIKE '%autovacuum_enabled=false%'
    OR c.reloptions::text LIKE '%autovacuum_enabled=off%', false) AS is_off
FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
WHERE s.schemaname = $1 ORDER BY s.relname;

-- name: version
SELECT max(version) AS version FROM task_engine.migrations;

-- name: missing_rights
-- What this user lacks of the rights of an engine on the schema $1, as the
-- statements that grant it. History is only ever added to, and the versions of the
-- tables are only read.
WITH needed AS (
  SELECT c.oid, c.relname, c.relkind, right_name
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
  CROSS JOIN LATERAL unnest(CASE
    WHEN c.relkind = 'S' THEN ARRAY['USAGE']
    WHEN c.relkind = 'v' OR c.relname = 'migrations' THEN ARRAY['SELECT']
    WHEN c.relname = 'audit' THEN ARRAY['SELECT', 'INSERT']
    ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']
  END) WITH ORDINALITY AS r (right_name, place)
  WHERE n.nspname = $1 AND c.relkind IN ('r', 'v', 'S')
  ORDER BY c.relname, r.place
),
missing AS (
  SELECT format('GRANT %s ON %s%I.%I TO %I', string_agg(right_name, ', '),
    CASE relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END, $1, relname, current_user) AS statement,
    relname
  FROM needed
  WHERE NOT CASE relkind
    WHEN 'S' THEN has_sequence_privilege(oid, right_name)
    ELSE has_table_privilege(oid, right_name)
  END
  GROUP BY relkind, relname
  UNION ALL
  SELECT format('GRANT EXECUTE ON FUNCTION %s TO %I', p.oid::regprocedure, current_user), p.proname
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
  WHERE n.nspname = $1 AND NOT has_function_privilege(p.oid, 'EXECUTE')
)
SELECT statement, current_user::text AS name FROM missing ORDER BY relname, statement;
