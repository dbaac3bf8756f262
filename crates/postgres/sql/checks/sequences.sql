-- How much of each sequence is used.
SELECT sequencename AS name, coalesce(last_value, 0)::double precision / max_value AS used
FROM pg_sequences WHERE schemaname = $1 ORDER BY used DESC
