-- What the migrations have made, in its own words.
SELECT type, name, sql FROM sqlite_schema
WHERE (name LIKE 'task\_engine\_%' ESCAPE '\') AND sql IS NOT NULL
ORDER BY name
