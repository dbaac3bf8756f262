-- What the migrations have made in schema $1, in the server's own words. Options of
-- tables are left out: those are an operator's to tune.
SELECT 'table' AS kind, c.relname::text AS name,
  (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
      || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
      || CASE WHEN a.attidentity <> '' THEN ' GENERATED AS IDENTITY' ELSE '' END
      || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), ''), ', ' ORDER BY a.attname)
   FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS definition
FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'r'
UNION ALL
SELECT 'constraint', r.relname || '.' || c.conname,
  format('ALTER TABLE %s ADD CONSTRAINT %I %s', r.oid::regclass, c.conname, pg_get_constraintdef(c.oid))
FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
WHERE c.connamespace = $1::text::regnamespace AND c.contype <> 'n'
UNION ALL
SELECT 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
  || CASE WHEN i.indisvalid THEN '' ELSE ' -- not valid' END
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = $1::text::regnamespace
  AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid)
UNION ALL
SELECT 'view', c.relname::text, format('CREATE OR REPLACE VIEW %s AS %s', c.oid::regclass, pg_get_viewdef(c.oid))
FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'v'
UNION ALL
SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace AND p.prokind = 'f'
UNION ALL
SELECT 'trigger', c.relname || '.' || t.tgname, pg_get_triggerdef(t.oid)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = $1::text::regnamespace AND NOT t.tgisinternal
UNION ALL
SELECT 'type', t.typname::text,
  (SELECT string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid)
FROM pg_type t WHERE t.typnamespace = $1::text::regnamespace AND t.typtype = 'e'
ORDER BY 1, 2
