-- Rows that deletes and updates have left dead, whether vacuum has removed them
-- since or not.
SELECT coalesce(sum(n_tup_del + n_tup_upd), 0)::bigint
FROM pg_stat_user_tables WHERE schemaname = $1
