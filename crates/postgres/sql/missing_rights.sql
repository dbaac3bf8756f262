-- What this user lacks of the rights of an engine on the schema $1, as the
-- statements that grant it. History is only ever added to, and the versions of the
-- tables are only read.
WITH needed AS (
  SELECT c.oid, c.relname, c.relkind, right_name
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
  CROSS JOIN LATERAL unnest(CASE
    WHEN c.relkind = 'S' THEN ARRAY['USAGE']
    WHEN c.relkind = 'v' OR c.relname = 'migrations' THEN ARRAY['SELECT']
    WHEN c.relname = 'audit' THEN ARRAY['SELECT', 'INSERT']
    ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']
  END) WITH ORDINALITY AS r (right_name, place)
  WHERE n.nspname = $1 AND c.relkind IN ('r', 'v', 'S')
  ORDER BY c.relname, r.place
),
missing AS (
  SELECT format('GRANT %s ON %s%I.%I TO %I', string_agg(right_name, ', '),
    CASE relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END, $1, relname, current_user) AS statement,
    relname
  FROM needed
  WHERE NOT CASE relkind
    WHEN 'S' THEN has_sequence_privilege(oid, right_name)
    ELSE has_table_privilege(oid, right_name)
  END
  GROUP BY relkind, relname
  UNION ALL
  SELECT format('GRANT EXECUTE ON FUNCTION %s TO %I', p.oid::regprocedure, current_user), p.proname
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
  WHERE n.nspname = $1 AND NOT has_function_privilege(p.oid, 'EXECUTE')
)
SELECT statement, current_user::text AS name FROM missing ORDER BY relname, statement
