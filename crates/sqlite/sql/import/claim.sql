-- A claim of its own: its holder is gone, and recovery takes it back.
INSERT INTO task_engine_claims (id, instance_id, claimed_at, attempts)
VALUES (?1, ?2, ?3, json_array(json_array(?4, ?5, ?6)))
