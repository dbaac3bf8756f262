-- The audit log, access to the dashboard, and rollups.

-- The audit log. Insert only, enforced by triggers: an entry can be deleted when it is 90
-- days old, and never changed.
CREATE TABLE task_engine.audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL
    CONSTRAINT "an action is done before the year 9999"
    CHECK (isfinite(at) AND at < '9999-01-01Z'),
  actor text NOT NULL,
  action text NOT NULL,
  target text NOT NULL,
  reason text,
  detail jsonb NOT NULL
    CONSTRAINT "a detail is within the limits of JSON"
    CHECK (pg_column_size(detail) < 200 AND octet_length(detail::text) < 130
      OR task_engine.check_json(detail, 'the detail')),
  outcome text NOT NULL
    CONSTRAINT "an outcome is a known word"
    CHECK (outcome IN ('started', 'done', 'refused', 'failed')),
  of_id bigint,                           -- the entry of the request, if this one has its outcome
  CONSTRAINT "the texts of an action have at most 16 KiB"
    CHECK (greatest(octet_length(actor), octet_length(action), octet_length(target),
      octet_length(reason)) <= 16384)
);

CREATE FUNCTION task_engine.audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND OLD.at <= clock_timestamp() - interval '90 days' THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'the audit log is append-only: no % on %', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER audit_is_append_only
BEFORE UPDATE OR TRUNCATE ON task_engine.audit
FOR EACH STATEMENT EXECUTE FUNCTION task_engine.audit_is_append_only();

CREATE TRIGGER audit_no_early_delete
BEFORE DELETE ON task_engine.audit
FOR EACH ROW EXECUTE FUNCTION task_engine.audit_is_append_only();

-- Access to the dashboard. Only hashes of tokens are stored.
CREATE TABLE task_engine.tokens (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL
    CONSTRAINT "a token has a name of 1 to 200 bytes" CHECK (octet_length(name) BETWEEN 1 AND 200),
  role text NOT NULL
    CONSTRAINT "a role is a known word" CHECK (role IN ('viewer', 'operator', 'admin')),
  hash bytea NOT NULL UNIQUE
    CONSTRAINT "a hash has 32 bytes" CHECK (length(hash) = 32),
  created_at timestamptz NOT NULL,
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz,
  CONSTRAINT "a token has its times before the year 9999"
    CHECK (isfinite(created_at) AND isfinite(coalesce(expires_at, created_at))
      AND isfinite(coalesce(last_used_at, created_at)) AND isfinite(coalesce(revoked_at, created_at))
      AND greatest(created_at, expires_at, last_used_at, revoked_at) < '9999-01-01Z')
);
CREATE UNIQUE INDEX tokens_by_name ON task_engine.tokens (name) WHERE revoked_at IS NULL;

-- A random key of this database, for keyed hashes.
CREATE TABLE task_engine.database_key (
  is_only boolean PRIMARY KEY DEFAULT true CONSTRAINT "there is one key" CHECK (is_only),
  key bytea NOT NULL CONSTRAINT "a key has 32 bytes" CHECK (length(key) = 32)
);
-- Two UUIDs: 244 bits of the server's strong randomness.
INSERT INTO task_engine.database_key (key)
VALUES (decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));

-- Logins to the dashboard that were ended before they expired.
CREATE TABLE task_engine.ended_logins (
  id bytea PRIMARY KEY CONSTRAINT "a login has 16 bytes" CHECK (length(id) = 16),
  expires_at timestamptz NOT NULL
);

-- Rollups: the counters of an engine for one minute and class. An engine writes its own
-- rows only, and only forward. No index but the key, so that an update
-- stays on its page.
CREATE TABLE task_engine.rollups (
  minute timestamptz NOT NULL
    CONSTRAINT "a minute is before the year 9999"
    CHECK (isfinite(minute) AND minute < '9999-01-01Z'),
  task_class text NOT NULL,               -- '': all others of this engine
  instance_id bigint NOT NULL,
  generation integer NOT NULL,            -- how often the clock had gone back
  ok bigint NOT NULL,
  failed bigint NOT NULL,
  other bigint NOT NULL,
  run_us bigint NOT NULL,                 -- of all of them together
  run_max_us bigint NOT NULL,             -- the longest: no estimate exceeds it
  wait_max_us bigint NOT NULL,
  run bigint[] NOT NULL,
  wait bigint[] NOT NULL,
  PRIMARY KEY (minute, task_class, instance_id, generation),
  CONSTRAINT "a histogram has 28 buckets" CHECK (cardinality(run) = 28 AND cardinality(wait) = 28)
) WITH (fillfactor = 50);
