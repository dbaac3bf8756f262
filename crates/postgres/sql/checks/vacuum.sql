-- Dead rows of our tables, as the statistics have them: nothing is counted.
SELECT s.relname AS name, s.n_live_tup AS live, s.n_dead_tup AS dead,
  extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::bigint AS vacuumed_secs,
  coalesce(c.reloptions::text LIKE '%autovacuum_enabled=false%'
    OR c.reloptions::text LIKE '%autovacuum_enabled=off%', false) AS is_off
FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
WHERE s.schemaname = $1 ORDER BY s.relname
