-- Connections of this bench but the one that asks.
SELECT count(*) FROM pg_stat_activity
WHERE application_name = $1 AND pid <> pg_backend_pid()
