//! Durable tasks in exports: an imported copy continues as the original would.

use std::time::Duration;

use task_engine_core::change::{Edit, EditReport};
use task_engine_core::step::{KEPT_STEPS, SignalStatus, StepContent};
use task_engine_core::task::{Due, TaskId, TaskStatus};
use task_engine_store::error::StoreError;
use task_engine_store::export::{ExportHeader, ExportLine, ImportIds, ImportOutcome, TaskRecord};

use crate::TestDatabase;
use crate::durable::{HOUR, child, json};
use crate::exports::{export, import, text};
use crate::fixture::{Fixture, TestEngine, WORK, new_task};

/// Durable tasks that wait.
struct Waits {
    /// It waits for the signal `approved`, and has received another one.
    order: TaskId,
    /// It waits for its children.
    sum: TaskId,
    /// They wait.
    children: Vec<TaskId>,
}

async fn durable_tasks(fixture: &Fixture, engine: &mut TestEngine) -> Waits {
    let order = fixture.create(new_task(WORK)).await;
    let hold = engine.claim_one().await;
    fixture.must_record(hold.result("charge", 1)).await;
    fixture.must_record(hold.step("null", 2, StepContent::Value(json("null")))).await;
    fixture.must_record(hold.step("sleep", 3, StepContent::SleepFor(Duration::ZERO))).await;
    fixture.must_record(hold.step("approved", 4, StepContent::Wait(HOUR))).await;
    // Numbers of attempts, not ids.
    fixture.must_record(hold.step("a#ended", 5, StepContent::ChildrenEnded(vec![1, 900]))).await;
    assert_eq!(fixture.signal(order, "later#2", r#"{"by":"ada"}"#).await, SignalStatus::Kept);
    fixture.suspend(hold.waits_for(&["approved"])).await;

    let sum = fixture.create(new_task(WORK)).await;
    let hold = engine.claim_one().await;
    let children = fixture.call(&hold.call(WORK, 1, vec![child(); 3])).await;
    fixture.must_record(hold.step("a#ended", 2, StepContent::ChildrenEnded(vec![1, 900]))).await;
    fixture.suspend(hold.waits_for_children()).await;
    // The first one has ended: the second one is watched.
    let first = engine.claim_one().await;
    assert_eq!(first.task_id(), children[0]);
    engine.record(&[first.succeeds()]).await;
    assert_eq!(fixture.resume_parents(&[children[0]]).await, 0);
    Waits { order, sum, children }
}

async fn import_copy(fixture: &Fixture, lines: &[ExportLine]) -> i64 {
    let imported = import(&*fixture.store, &text(lines), ImportIds::New).await.expect("import");
    let ImportOutcome::Done { shift, .. } = imported else { panic!("{imported:?}") };
    shift.tasks
}

fn header(lines: &[ExportLine]) -> &ExportHeader {
    match lines.first() {
        Some(ExportLine::Header(header)) => header,
        other => panic!("{other:?}"),
    }
}

fn record(lines: &[ExportLine], id: TaskId) -> TaskRecord {
    let records = lines.iter().filter_map(|line| match line {
        ExportLine::Task(task) => Some((**task).clone()),
        _ => None,
    });
    records.into_iter().find(|task| task.id == id.0).unwrap_or_else(|| panic!("task {id}"))
}

/// All ids move together, and everything else stays.
pub async fn durable_rows_move_together(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let waits = durable_tasks(&fixture, &mut engine).await;
    let mut kept = new_task(WORK).after(HOUR);
    kept.add_context(KEPT_STEPS, &waits.sum).expect("a context");
    let kept = fixture.store.create_with_steps(&kept, waits.sum, 3).await.expect("create");
    let before = export(&*fixture.store, &[]).await;
    let shift = import_copy(&fixture, &before).await;
    assert_eq!(shift, header(&before).last_task_id);
    let moved = |id: TaskId| TaskId(id.0 + shift);
    let children: Vec<_> = waits.children.iter().map(|id| moved(*id)).collect();

    let (order, copy) = (fixture.steps(waits.order).await, fixture.steps(moved(waits.order)).await);
    assert_eq!((copy.steps, copy.signals), (order.steps, order.signals));
    let after = export(&*fixture.store, &[]).await;
    for parent in [waits.sum, kept] {
        let steps = fixture.steps(moved(parent)).await.steps;
        assert_eq!(steps[0].children(), children, "{parent}");
        let copy = record(&after, moved(parent));
        assert_eq!(copy.depends_on, children.iter().map(|id| id.0).collect::<Vec<_>>());
    }
    let watching = record(&after, moved(waits.sum)).suspended.expect("suspended").watching;
    assert_eq!(watching, Some(children[1].0));
    let context = record(&after, moved(kept)).context;
    let context: serde_json::Value = context.decode().expect("JSON");
    assert_eq!(context[KEPT_STEPS], moved(waits.sum).0);
}

/// A suspended copy continues when its signal arrives, or its last child ends.
pub async fn imported_suspended_tasks_continue(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let waits = durable_tasks(&fixture, &mut engine).await;
    let lines = export(&*fixture.store, &[]).await;
    let open: Vec<_> = [waits.order, waits.sum].into_iter().chain(waits.children).collect();
    fixture.store.cancel(&open).await.expect("cancel");
    let shift = import_copy(&fixture, &lines).await;
    engine.wake();
    for _ in 0..2 {
        let child = engine.claim_one().await;
        engine.record(&[child.succeeds()]).await;
        fixture.resume_parents(&[child.task_id()]).await;
    }
    let sum = engine.claim_one().await;
    assert_eq!((sum.task_id().0, sum.id().attempt), (waits.sum.0 + shift, 2));
    let order = TaskId(waits.order.0 + shift);
    assert_eq!(fixture.signal(order, "later#2", "1").await, SignalStatus::Duplicate);
    assert_eq!(fixture.signal(order, "approved", "true").await, SignalStatus::Delivered);
    let order_again = engine.claim_one().await;
    assert_eq!((order_again.task_id(), order_again.id().attempt), (order, 2));
    engine.record(&[sum.succeeds(), order_again.succeeds()]).await;
}

/// A child that a filter left out of the file counts as removed: its parent continues.
pub async fn children_outside_export_count_removed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let waits = durable_tasks(&fixture, &mut engine).await;
    let holds = engine.claim(2).await;
    let lines = export(&*fixture.store, &[TaskStatus::Waiting]).await;
    let endings: Vec<_> = holds.iter().map(|hold| hold.succeeds()).collect();
    engine.record(&endings).await;
    fixture.store.cancel(&[waits.order, waits.sum]).await.expect("cancel");
    let shift = import_copy(&fixture, &lines).await;
    assert_eq!(record(&lines, waits.sum).depends_on.len(), 3, "they are still named");
    fixture.resume_missed().await;
    engine.wake();
    let sum = engine.claim_one().await;
    assert_eq!(sum.task_id().0, waits.sum.0 + shift);
    let child = TaskId(waits.children[0].0 + shift);
    let outcomes = fixture.store.child_outcomes(&[(child, None)]).await.expect("outcomes");
    let error = outcomes[0].clone().expect("an outcome").error.expect("an error");
    assert_eq!(error.exception, "TaskRemoved", "{error:?}");
    engine.record(&[sum.succeeds()]).await;
}

/// The row of an earlier suspension does not count, and is not exported.
pub async fn running_task_exports_no_suspension(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let id = fixture.create(new_task(WORK)).await;
    let hold = engine.claim_one().await;
    fixture.suspend(hold.waits_for(&["approved"])).await;
    let suspended = record(&export(&*fixture.store, &[]).await, id).suspended;
    assert_eq!(suspended.map(|one| one.signals), Some(vec!["approved".to_owned()]));
    // Without the signal: the row stays until a heartbeat removes it.
    let now = Edit { due: Some(Due::Now), ..Edit::default() };
    assert_eq!(fixture.store.edit(id, &now).await.expect("edit"), EditReport::Changed);
    engine.wake();
    let again = engine.claim_one().await;
    fixture.must_record(again.result("charge", 1)).await;
    let lines = export(&*fixture.store, &[]).await;
    let running = record(&lines, id);
    assert_eq!((running.status, running.suspended), (TaskStatus::Running, None));
    assert_eq!(running.steps[0].attempt, 2);
    import_copy(&fixture, &lines).await;
    engine.record(&[again.succeeds()]).await;
}

/// Wrong rows are refused with their reason, and nothing is imported.
pub async fn wrong_durable_rows_are_refused(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let waits = durable_tasks(&fixture, &mut engine).await;
    let lines = export(&*fixture.store, &[]).await;
    let whole = text(&lines);
    let plain = record(&lines, waits.children[1]);
    let plain = serde_json::to_string(&plain).expect("JSON");
    for field in ["steps", "signals", "depends_on", "suspended"] {
        assert!(!plain.contains(field), "as in files of earlier versions: {plain}");
    }
    let last = header(&lines).last_task_id;
    let [first, second, third] = &waits.children[..] else { panic!("three children") };
    let depends_on = format!("\"depends_on\":[{first},{second},{third}]");
    let called = format!("\"kind\":\"call\",\"result\":[{first},{second},{third}]");
    let far = format!("\"depends_on\":[{first},{second},{}]", last + 1);
    let far_call = format!("\"kind\":\"call\",\"result\":[{}]", last + 1);
    let unknown = format!("\"watching\":{}", waits.order);
    let watching = format!("\"watching\":{second}");
    for (part, wrong, words) in [
        ("\"kind\":\"wait\"", "\"kind\":\"dream\"", "unknown variant `dream`"),
        ("\"kind\":\"wait\"", "\"kind\":\"step\"", "a step has the field `result`, and no `until`"),
        ("\"name\":\"null\"", "\"name\":\"charge\"", "step \"charge\": it is there twice"),
        ("\"name\":\"charge\"", "\"name\":\"\"", "a name of 1 to 220 bytes"),
        ("\"name\":\"charge\",\"number\":1", "\"name\":\"charge\",\"number\":0", "from 1"),
        ("\"number\":2,\"attempt\":1", "\"number\":2,\"attempt\":7", "attempt 7 has recorded it"),
        ("\"number\":2", "\"number\":\"2\"", "invalid type: string"),
        ("\"name\":\"later#2\"", "\"name\":\"later#1\"", "invalid name of a signal"),
        ("\"payload\":", "\"no_payload\":", "unknown field `no_payload`"),
        ("{\"signals\":[\"approved\"]}", "{\"signals\":[\"#\"]}", "invalid name of a signal"),
        ("{\"signals\":[\"approved\"]}", "{\"signals\":\"approved\"}", "invalid type: string"),
        (&depends_on, "\"depends_on\":[2,1]", "it depends on task 1 after task 2"),
        (&depends_on, &far, "the header names"),
        (&called, &far_call, "the header names"),
        (&called, "\"kind\":\"call\",\"result\":{}", "the list of its tasks"),
        (&watching, &unknown, "on which it does not depend"),
    ] {
        let file = whole.replacen(part, wrong, 1);
        assert_ne!(file, whole, "{part}");
        match import(&*fixture.store, &file, ImportIds::New).await {
            Err(StoreError::InvalidData(why)) => assert!(why.contains(words), "{words}: {why}"),
            other => panic!("{words}: {other:?}"),
        }
    }
    assert_eq!(export(&*fixture.store, &[]).await[1..], lines[1..]);
}
