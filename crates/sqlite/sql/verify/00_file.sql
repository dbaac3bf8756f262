-- The file itself: every page, and every index against its table.
SELECT 'the database file is damaged: ' || integrity_check
FROM pragma_integrity_check
WHERE integrity_check <> 'ok'
