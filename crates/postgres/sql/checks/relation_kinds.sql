-- Tables of schema $1 that are not ordinary ones, and whether Citus is there.
SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL AS has_citus,
  ARRAY(SELECT c.relname || CASE c.relkind WHEN 'p' THEN ' (partitioned)' ELSE ' (foreign)' END
        FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('p', 'f')
        ORDER BY 1) AS odd
