-- Stands in for pg_notify, and notifies nobody.
CREATE OR REPLACE FUNCTION task_engine.stay_silent(channel text, payload text) RETURNS void
LANGUAGE sql AS $$ SELECT $$;
