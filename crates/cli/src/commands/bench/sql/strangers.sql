-- Connections of others that have been at work within so many seconds ($2), on
-- the whole server and in this database: what they use is counted as if it
-- were ours.
SELECT count(*), count(*) FILTER (WHERE datname = current_database())
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name <> $1
  AND state_change > clock_timestamp() - $2::float8 * interval '1 second'
