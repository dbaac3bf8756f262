-- All tables of a bench, but the one that says which version they are of.
SELECT format('%I.%I', schemaname, tablename)
FROM pg_tables WHERE schemaname = $1 AND tablename <> 'migrations'
