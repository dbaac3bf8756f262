-- The functions of a bench that notify, each as a statement that creates it.
SELECT pg_get_functiondef(f.oid)
FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
WHERE n.nspname = $1 AND f.prokind = 'f' AND f.prosrc LIKE '%pg\_notify(%'
