-- All tables of a bench, but the one that says which version they are of, and the
-- one that nothing can be removed from.
SELECT format('%I.%I', schemaname, tablename)
FROM pg_tables WHERE schemaname = $1 AND tablename NOT IN ('migrations', 'audit')
