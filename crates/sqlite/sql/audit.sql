INSERT INTO task_engine_audit (at, actor, action, target, reason, detail, outcome, of_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
