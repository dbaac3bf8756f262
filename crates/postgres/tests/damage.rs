//! A damaged row affects only itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use task_engine_conformance::fixture::new_instance;
use task_engine_core::claim::ClaimIds;
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::queue::Lanes;
use task_engine_core::recovery::Reclaim;
use task_engine_core::schedule::Schedule;
use task_engine_core::task::{NewTask, TaskId, TaskListQuery};
use task_engine_core::unique::Unique;
use task_engine_postgres::PgStore;
use task_engine_store::audit::AuditFilter;
use task_engine_store::check::CheckDepth;
use task_engine_store::claim::{ClaimedTask, Claimer};
use task_engine_store::export::{ExportFilter, ExportLine};
use task_engine_store::scan::{Scan, ScanSource};
use task_engine_store::schedules::Schedules;
use task_engine_test_harness::{TestServer, connect};
use tokio_postgres::Client;

async fn store_and_client() -> (PgStore, Client) {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let client = connect(&url).await;
    (store, client)
}

/// One such row would stop the heartbeats of all engines, or all schedules.
#[tokio::test]
async fn out_of_range_times_are_refused() {
    let (store, client) = store_and_client().await;
    let task = NewTask::new("work", Json::empty_object()).unwrap();
    store.create(&[task]).await.unwrap();
    client
        .batch_execute(
            "INSERT INTO task_engine.schedules
               (name, anchor, next_at, created_at, updated_at, overlap, definition)
             VALUES ('a', now(), now(), now(), now(), 'allow', '{}')",
        )
        .await
        .unwrap();
    for time in ["infinity", "-infinity", "20000-01-01"] {
        let schedule = |column| format!("UPDATE task_engine.schedules SET {column} = '{time}'");
        for harm in [
            schedule("next_at"),
            schedule("anchor"),
            schedule("last_slot"),
            schedule("next_at = NULL, paused_at"),
            schedule("created_at"),
            schedule("updated_at"),
            format!(
                "INSERT INTO task_engine.fired_slots SELECT id, '{time}', 1, now() FROM task_engine.schedules"
            ),
            format!(
                "INSERT INTO task_engine.fired_slots SELECT id, now(), 1, '{time}' FROM task_engine.schedules"
            ),
            format!(
                "INSERT INTO task_engine.schedule_events
                 (schedule_id, kind, first_slot, last_slot, slots, recorded_at)
                 SELECT id, 'skipped_missed', now(), '{time}', 1, now() FROM task_engine.schedules"
            ),
            format!(
                "INSERT INTO task_engine.schedule_events (schedule_id, kind, slots, task_id, recorded_at)
                 SELECT id, 'manual', 0, 1, '{time}' FROM task_engine.schedules"
            ),
            format!("INSERT INTO task_engine.paused_queues VALUES ('q', NULL, '{time}')"),
            format!(
                "INSERT INTO task_engine.execution_progress VALUES (1, 1, 1, 0, 1, '', '{time}')"
            ),
            format!(
                "INSERT INTO task_engine.execution_logs VALUES (1, 1, 1, '{time}', 'info', '')"
            ),
            format!("INSERT INTO task_engine.cancellations VALUES (1, 1, '{time}')"),
            format!("INSERT INTO task_engine.cancellations VALUES (1, 1, now(), '{time}')"),
            format!(
                "INSERT INTO task_engine.audit (at, actor, action, target, detail, outcome)
                 VALUES ('{time}', 'a', 'a', 't', '{{}}', 'done')"
            ),
            format!(
                "INSERT INTO task_engine.tokens (name, role, hash, created_at, expires_at)
                 VALUES ('a', 'admin', sha256('a'), now(), '{time}')"
            ),
            format!(
                "INSERT INTO task_engine.rollups
                 SELECT '{time}', 'a', 1, 0, 1, 0, 0, 0, 0, 0, h, h FROM (SELECT array_fill(0, '{{28}}')) AS f (h)"
            ),
        ] {
            let refused = client.batch_execute(&harm).await.expect_err(&harm);
            let code = refused.code().map(tokio_postgres::error::SqlState::code);
            assert_eq!(code, Some("23514"), "{harm}: {refused:?}");
        }
    }
}

/// Creation with a key repeats until all waiting tasks of the key are locked.
#[tokio::test]
async fn creation_ends_despite_damaged_keys() {
    let (store, client) = store_and_client().await;
    let unique = |key: &str| {
        let task = NewTask::new("work", Json::empty_object()).unwrap();
        task.unique(Unique::by(key)).unwrap()
    };
    store.create(&[unique("one")]).await.unwrap();
    for harm in [
        // Two keys, one task.
        "INSERT INTO task_engine.unique_tasks SELECT task_class, 'two', task_id FROM task_engine.unique_tasks",
        // A task that waits and was never created.
        "DELETE FROM task_engine.created_tasks",
    ] {
        client.batch_execute(harm).await.unwrap();
        let tasks = [unique("one"), unique("two")];
        let created = tokio::time::timeout(Duration::from_secs(20), store.create(&tasks)).await;
        assert_eq!(created.expect(harm).unwrap().len(), 2);
    }
}

const NO_LIMITS: &str = r#"
    ALTER TABLE task_engine.created_tasks
      DROP CONSTRAINT "task parameters are within the limits of JSON",
      DROP CONSTRAINT "the context of a task is within the limits of JSON",
      DROP CONSTRAINT "task parameters are a JSON object";
    ALTER TABLE task_engine.ended_executions
      DROP CONSTRAINT "a result is within the limits of JSON",
      DROP CONSTRAINT "an error is within the limits of JSON";
    ALTER TABLE task_engine.late_results
      DROP CONSTRAINT "a late result is within the limits of JSON";
    ALTER TABLE task_engine.schedules DROP CONSTRAINT "a schedule is within the limits of JSON";
    ALTER TABLE task_engine.instances
      DROP CONSTRAINT "the classes of an engine are within the limits of JSON";
    ALTER TABLE task_engine.audit DROP CONSTRAINT "a detail is within the limits of JSON";"#;

/// A value that takes seconds to print, and then fails.
const EXPLOSIVE: &str =
    "(SELECT jsonb_build_object('n', jsonb_agg('1e131071'::jsonb)) FROM generate_series(1, 60000))";
const DEEP: &str = "(SELECT ('{\"d\":' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb)";
const PADDED: &str =
    "(SELECT jsonb_build_object('n', jsonb_agg('0e-16383'::jsonb)) FROM generate_series(1, 100))";

/// Every SQL path to every JSON column refuses such values at once, with the reason.
#[tokio::test]
async fn sql_refuses_json_beyond_limits() {
    let (store, client) = store_and_client().await;
    let task = NewTask::new("work", Json::empty_object()).unwrap();
    store.create(&[task]).await.unwrap();
    let columns = "task_id, attempt, retry_number, stopped_at, ends_task";
    for (value, why) in [
        (EXPLOSIVE, "more than 1000 digits"),
        (DEEP, "deeper than 64 levels"),
        (PADDED, "bytes of text are too many"),
    ] {
        for harm in [
            format!("SELECT task_engine.create_task('work', {value})"),
            format!("SELECT task_engine.create_task('work', context => {value})"),
            format!("SELECT task_engine.create_tasks(ARRAY['work'], ARRAY[{value}])"),
            format!("SELECT task_engine.create_task('work', {value}, unique_key => 'a')"),
            format!("SELECT task_engine.create_unique_task('work', 'a', {value})"),
            format!(
                "INSERT INTO task_engine.tasks (task_class, task_parameters) VALUES ('work', {value})"
            ),
            format!("INSERT INTO task_engine.tasks (task_class, context) VALUES ('work', {value})"),
            format!("UPDATE task_engine.created_tasks SET task_parameters = {value}"),
            format!(
                "INSERT INTO task_engine.ended_executions ({columns}, result)
                     VALUES (1, 1, 0, now(), 'stopped', {value})"
            ),
            format!(
                "INSERT INTO task_engine.ended_executions ({columns}, error)
                     VALUES (1, 1, 0, now(), 'failed', {value})"
            ),
            format!("INSERT INTO task_engine.late_results VALUES (1, 1, now(), {value}, NULL)"),
            format!("INSERT INTO task_engine.late_results VALUES (1, 1, now(), NULL, {value})"),
            format!(
                "INSERT INTO task_engine.schedules
                       (name, anchor, created_at, updated_at, overlap, definition)
                     VALUES ('a', now(), now(), now(), 'allow', {value})"
            ),
            format!(
                "INSERT INTO task_engine.audit (at, actor, action, target, detail, outcome)
                     VALUES (now(), 'a', 'a', 't', {value}, 'done')"
            ),
        ] {
            let begun = std::time::Instant::now();
            let refused = client.batch_execute(&harm).await.expect_err(&harm);
            let refused = refused.as_db_error().expect("the server's word");
            assert_eq!(refused.code().code(), "23514", "{harm}: {refused:?}");
            assert!(refused.message().contains(why), "{harm}: {refused:?}");
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?} for {harm}", begun.elapsed());
        }
    }
}

/// Rows that were inserted without checks: a claim separates them from the others.
#[tokio::test]
async fn claims_skip_unreadable_rows() {
    let (store, client) = store_and_client().await;
    client.batch_execute(NO_LIMITS).await.unwrap();
    let task = || NewTask::new("work", Json::empty_object()).unwrap();
    let ids = store.create(&vec![task(); 12]).await.unwrap();
    for (place, column, value) in [
        (0, "task_parameters", EXPLOSIVE),
        (2, "task_parameters", DEEP),
        (3, "context", PADDED),
        (5, "task_parameters", "'[1]'::jsonb"),
    ] {
        let id = ids[place].0;
        let harm =
            format!("UPDATE task_engine.created_tasks SET {column} = {value} WHERE id = {id}");
        client.batch_execute(&harm).await.unwrap();
    }
    let harm = format!(
        "UPDATE task_engine.waiting_tasks SET attempt = 2147483647 WHERE task_id = {};
         UPDATE task_engine.waiting_tasks SET due_at = '-infinity' WHERE task_id = {};
         UPDATE task_engine.waiting_tasks SET due_at = 'infinity' WHERE task_id = {};
         UPDATE task_engine.waiting_tasks SET priority = -2147483648 WHERE task_id = {}",
        ids[7].0, ids[8].0, ids[9].0, ids[10].0
    );
    client.batch_execute(&harm).await.unwrap();

    let mut engine = Engine::register(&store, "a").await;
    let claimed = engine.claim_all(11).await;
    let mut claimed: Vec<_> = claimed.iter().map(|task| (task.id.task_id, task)).collect();
    claimed.sort_unstable_by_key(|(id, _)| *id);
    let bad: Vec<_> = claimed.iter().filter(|(_, task)| task.unreadable.is_some()).collect();
    let bad_ids: Vec<_> = bad.iter().map(|(id, _)| *id).collect();
    assert_eq!(bad_ids, [ids[0], ids[2], ids[3], ids[5], ids[7]], "{bad:?}");
    let why = |place: usize| bad[place].1.unreadable.as_deref().unwrap();
    assert!(why(0).starts_with("its parameters cannot be read: a number"), "{}", why(0));
    assert!(why(1).contains("nested deeper"), "{}", why(1));
    assert!(why(2).starts_with("its context cannot be read: "), "{}", why(2));
    assert!(why(3).contains("a JSON object is needed"), "{}", why(3));
    assert!(why(4).contains("2147483647"), "{}", why(4));
    assert_eq!(claimed.len(), 11, "all but the one that is never due");

    // An engine that dies with such rows in its hands is recovered.
    assert!(store.declare_lost(engine.id, true).await.unwrap());
    let taken = store.reclaim(Reclaim::Lost(engine.id)).await;
    assert_eq!(taken.unwrap().len(), 11);
}

/// Every read returns in time and names the unreadable row.
#[tokio::test]
async fn readers_report_unreadable_rows() {
    let (store, client) = store_and_client().await;
    client.batch_execute(NO_LIMITS).await.unwrap();
    let task = || NewTask::new("work", Json::empty_object()).unwrap();
    let ids = store.create(&[task(), task(), task(), task()]).await.unwrap();
    let [asked, said, late] = [ids[0].0, ids[1].0, ids[2].0];
    let schedule = Schedule::every("good", Duration::from_secs(60)).new_task(task());
    Schedules::of(&store).add(&schedule).await.unwrap();
    let engine = Engine::register(&store, "a").await;
    let harm = format!(
        "UPDATE task_engine.created_tasks SET task_parameters = {EXPLOSIVE}, context = {EXPLOSIVE}
           WHERE id = {asked};
         DELETE FROM task_engine.waiting_tasks WHERE task_id IN ({said}, {late});
         INSERT INTO task_engine.ended_executions
           (task_id, attempt, retry_number, claim_id, instance_id, started_at, stopped_at, ends_task,
            result, error)
         VALUES ({said}, 1, 0, 1, {engine}, 'infinity', now(), 'failed', NULL, {EXPLOSIVE}),
           ({late}, 1, 0, 1, {engine}, '-infinity', now(), 'stopped', {EXPLOSIVE}, NULL);
         INSERT INTO task_engine.late_results VALUES ({late}, 1, 'infinity', {EXPLOSIVE}, NULL);
         INSERT INTO task_engine.schedules
           (name, anchor, next_at, created_at, updated_at, overlap, definition)
         VALUES ('bad', now(), now(), now(), now(), 'allow', {EXPLOSIVE});
         UPDATE task_engine.instances SET classes = {EXPLOSIVE};
         INSERT INTO task_engine.audit (at, actor, action, target, detail, outcome)
         VALUES (now(), 'a', 'a', 't', {EXPLOSIVE}, 'done')",
        engine = engine.id.0
    );
    client.batch_execute(&harm).await.unwrap();

    let begun = std::time::Instant::now();
    let unreadable = |json: &Json| json.as_str().contains("\"unreadable\"");
    let details = store.task(TaskId(asked)).await.unwrap().unwrap();
    assert!(unreadable(&details.parameters) && unreadable(&details.context), "{details:?}");
    let error = store.task(TaskId(said)).await.unwrap().unwrap().executions[0].error.clone();
    assert!(error.unwrap().message.contains("more than 1000 digits"));
    let details = store.task(TaskId(late)).await.unwrap().unwrap();
    assert!(unreadable(details.executions[0].result.as_ref().unwrap()));
    assert!(unreadable(details.late_results[0].result.as_ref().unwrap()));
    let page = TaskListQuery { limit: 10, ..TaskListQuery::default() };
    assert_eq!(store.tasks(&page).await.unwrap().len(), 4);
    let scan = Scan {
        source: ScanSource::All,
        from: TaskId(0),
        before: TaskId(i64::MAX),
        rows: 10,
        tasks: 10,
        classes: None,
        queues: None,
        created: Vec::new(),
        ended: Vec::new(),
        with_error: false,
        with_json: true,
    };
    assert_eq!(store.scan(&scan).await.unwrap().tasks.len(), 4);
    assert_eq!(store.schedules(None, 10).await.unwrap().len(), 2);
    assert_eq!(store.due_schedules(10).await.unwrap().rows.len(), 1);
    assert_eq!(store.instances(None).await.unwrap().len(), 1);
    assert_eq!(store.audit_page(&AuditFilter::newest(10)).await.unwrap().len(), 1);
    assert!(store.heartbeat(engine.id).await.unwrap().alive);
    store.checks(CheckDepth::Standard).await.unwrap();

    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let lines = lines.clone();
        Box::new(move |line| {
            lines.lock().unwrap().push(line);
            true
        })
    };
    store.export(&ExportFilter::default(), sink).await.unwrap();
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    let skipped: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            ExportLine::SkippedTask(skipped) => Some(skipped.id),
            _ => None,
        })
        .collect();
    assert_eq!(skipped, [asked]);
    let tasks = lines.iter().filter(|line| matches!(line, ExportLine::Task(_))).count();
    assert_eq!(tasks, 3, "what can be read is in the file");

    let violations = store.verify().await.unwrap();
    let violations: String = violations.iter().map(|it| format!("{it}\n")).collect();
    for what in ["the parameters of task 1", "the error of attempt 1 of task 2", "schedule bad"] {
        assert!(violations.contains(what), "{what} in {violations}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(store.task(ids[3]).await.unwrap().is_some());
}

/// An engine that only claims.
struct Engine {
    id: InstanceId,
    claimer: Box<dyn Claimer>,
    ids: ClaimIds,
}

impl Engine {
    async fn register(store: &PgStore, name: &str) -> Self {
        let id = store.register(&new_instance(name)).await.unwrap();
        let lanes = Lanes::new(vec!["default".to_owned()], vec!["work".to_owned()]);
        Self { id, claimer: store.claimer(id, lanes), ids: ClaimIds::new(id) }
    }

    /// Claims until it has this many tasks, or none comes.
    async fn claim_all(&mut self, count: usize) -> Vec<ClaimedTask> {
        let begun = std::time::Instant::now();
        let mut tasks = Vec::new();
        while tasks.len() < count && begun.elapsed() < Duration::from_secs(60) {
            let claim = self.claimer.claim(self.ids.take(), 5).await.unwrap();
            tasks.extend(claim.tasks);
        }
        tasks
    }
}
