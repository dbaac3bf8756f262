-- Tables of schema $1 that Citus has distributed.
SELECT c.relname::text AS name FROM pg_catalog.pg_dist_partition p
JOIN pg_class c ON c.oid = p.logicalrel WHERE c.relnamespace = $1::text::regnamespace
ORDER BY 1
