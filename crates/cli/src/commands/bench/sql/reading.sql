-- What the server has written so far, and how many transactions have written.
-- Both are known at once; the counters of pg_stat_database lag by seconds.
SELECT
  pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
  txid_snapshot_xmax(txid_current_snapshot())
