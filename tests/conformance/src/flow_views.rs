//! Readers know flows: lists, counts, dependencies and exports. Blocked tasks are not shown
//! as due.

use std::time::Duration;

use task_engine_core::dependency::{Flow, FlowCounts, FlowRow, FlowState, FlowsQuery};
use task_engine_core::flow::FlowPage;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::activity::ActivityQuery;
use task_engine_store::check::{CheckDepth, Verdict};
use task_engine_store::export::{ExportLine, ImportIds, ImportOutcome, TaskRecord};
use task_engine_store::queue_position::QueuePositionQuery;
use task_engine_store::scan::{Scan, ScanSource};

use crate::TestDatabase;
use crate::durable::HOUR;
use crate::exports::{export, import, text};
use crate::fixture::{Fixture, WORK};
use crate::flow_fixture::TestEnd::{Fails, IsCancelled, Succeeds};
use crate::flow_fixture::{TestFlows, brief, chain, flow_of, work};

async fn flows(fixture: &Fixture, query: FlowsQuery) -> Vec<FlowRow> {
    fixture.store.flows(&query).await.expect("flows")
}

fn all() -> FlowsQuery {
    FlowsQuery { correlation_id: None, before: None, limit: 100, tasks_counted_max: 1000 }
}

fn named(correlation_id: &str) -> FlowsQuery {
    FlowsQuery { correlation_id: Some(correlation_id.to_owned()), ..all() }
}

/// Blocked tasks are counted up to a limit, of all flows.
pub async fn blocked_tasks_are_counted(db: &dyn TestDatabase) {
    let mut store = TestFlows::with(db, chain(5)).await;
    store.create(flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["a"])])).await;
    let blocked = async |store: &TestFlows, limit: u32| {
        let blocked = store.fixture.store.blocked_tasks(limit).await.expect("blocked_tasks");
        assert_eq!(blocked.overdue, []);
        (blocked.tasks.counted, blocked.tasks.and_more)
    };
    assert_eq!(blocked(&store, 100).await, (6, false));
    assert_eq!(blocked(&store, 6).await, (6, false));
    assert_eq!(blocked(&store, 5).await, (5, true));
    store.starts(&["t0", "a"]).await;
    store.end("a", Fails).await;
    store.end("t0", Succeeds).await;
    assert_eq!(blocked(&store, 100).await, (3, false));
    store.cancel("t2").await;
    assert_eq!(blocked(&store, 100).await, (0, false));
}

/// Flows are listed with their names and the states of their tasks, the newest first.
pub async fn flows_are_listed(db: &dyn TestDatabase) {
    let mut store = TestFlows::open(db).await;
    assert_eq!(flows(&store.fixture, all()).await, []);
    store.create_plain("no flow", work()).await;
    let one = flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]).name("nightly");
    store.create(one.correlation("n-1")).await;
    let two = store.create(flow_of(&[("d", &[]), ("e", &["d"])])).await;
    let three = flow_of(&[("f", &[]), ("g", &["f"])]).add("h", work()).after_end("g");
    store.create(three.name("nightly").correlation("n-2")).await;
    let rows = flows(&store.fixture, all()).await;
    let found: Vec<_> =
        rows.iter().map(|row| (row.correlation_id.as_str(), row.name.as_deref())).collect();
    assert_eq!(
        found,
        [("n-2", Some("nightly")), (&*two.correlation_id, None), ("n-1", Some("nightly"))]
    );
    assert!(rows.windows(2).all(|two| two[0].id > two[1].id), "{rows:?}");
    let counts = FlowCounts { blocked: 2, waiting: 1, ..FlowCounts::default() };
    assert_eq!((rows[2].counts, rows[2].counts.state()), (counts, FlowState::Open));

    let page = FlowsQuery { limit: 2, ..all() };
    assert_eq!(flows(&store.fixture, page.clone()).await, rows[..2]);
    let next = FlowsQuery { before: Some(rows[1].id), ..page };
    assert_eq!(flows(&store.fixture, next).await, rows[2..]);
    assert_eq!(flows(&store.fixture, named("n-1")).await, rows[2..]);
    assert_eq!(flows(&store.fixture, named("n-3")).await, []);

    let mut names = store.claims().await;
    names.retain(|name| name != "no flow");
    assert_eq!(names, ["a", "d", "f"]);
    let state = async |store: &TestFlows, id: &str| {
        let rows = flows(&store.fixture, named(id)).await;
        (rows[0].counts, rows[0].counts.state())
    };
    let counts = FlowCounts { blocked: 2, running: 1, ..FlowCounts::default() };
    assert_eq!(state(&store, "n-1").await, (counts, FlowState::Open));
    store.end("a", Succeeds).await;
    store.end("d", IsCancelled).await;
    store.end("f", Fails).await;
    let counts = FlowCounts { cancelled: 2, ..FlowCounts::default() };
    assert_eq!(state(&store, &two.correlation_id).await, (counts, FlowState::Cancelled));
    let counts = FlowCounts { waiting: 1, failed: 1, cancelled: 1, ..FlowCounts::default() };
    assert_eq!(state(&store, "n-2").await, (counts, FlowState::Open));
    store.starts(&["b", "h"]).await;
    store.end("h", Succeeds).await;
    assert_eq!(state(&store, "n-2").await.1, FlowState::Failed);
    store.end("b", Succeeds).await;
    store.runs("c", Succeeds).await;
    let counts = FlowCounts { stopped: 3, ..FlowCounts::default() };
    assert_eq!(state(&store, "n-1").await, (counts, FlowState::Succeeded));
}

/// Tasks are counted up to a limit.
pub async fn flow_counts_stop_at_limit(db: &dyn TestDatabase) {
    let store = TestFlows::with(db, chain(30).correlation("long")).await;
    for (max, and_more) in [(10, true), (29, true), (30, false), (31, false)] {
        let query = FlowsQuery { tasks_counted_max: max, ..named("long") };
        let rows = flows(&store.fixture, query).await;
        let counts = rows[0].counts;
        assert_eq!((counts.total(), counts.and_more), (max.min(30), and_more), "{counts:?}");
        assert_eq!((counts.waiting, counts.blocked), (1, max.min(30) - 1));
    }
}

/// A flow that continues another one, or that is created again with its correlation id, is the
/// same flow.
pub async fn flow_may_grow(db: &dyn TestDatabase) {
    let mut store =
        TestFlows::with(db, flow_of(&[("a", &[]), ("b", &["a"])]).correlation("x").name("one"))
            .await;
    store.create(Flow::new().add("c", work()).after(store.id("b"))).await;
    store.create(Flow::new().correlation("x").name("two").add("d", work())).await;
    let plain = work().correlation("x").expect("an id");
    store.create_plain("e", plain).await;
    let rows = flows(&store.fixture, all()).await;
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.name.as_deref(), row.counts.total()), (Some("one"), 5));
    let page = FlowPage { correlation_id: "x".to_owned(), after: None, limit: 10 };
    let found = store.fixture.store.flow(&page).await.expect("flow");
    let found: Vec<_> = found.iter().map(|task| (task.row.id, task.row.is_blocked)).collect();
    let expected = ["a", "b", "c", "d", "e"].map(|name| (store.id(name), "bc".contains(name)));
    assert_eq!(found, expected);
}

/// All reads agree about which tasks are blocked.
pub async fn blocked_rows_agree_everywhere(db: &dyn TestDatabase) {
    let mut store = TestFlows::open(db).await;
    // One is in the queue of a later time, and one in another queue.
    let flow = Flow::new()
        .correlation("f")
        .add("a", work())
        .add("b", work().after(HOUR))
        .after("a")
        .add("c", work().queue("mail").expect("a queue"))
        .after(["a", "b"]);
    store.create(flow).await;
    for blocked in [true, false] {
        let listed = store.fixture.list(Some(TaskStatus::Waiting)).await;
        for source in [
            ScanSource::All,
            ScanSource::WithStatus(vec![TaskStatus::Waiting]),
            ScanSource::Flow("f".to_owned()),
            ScanSource::Ids(vec![store.id("b"), store.id("c")]),
        ] {
            let scan = Scan {
                source,
                from: TaskId(0),
                before: TaskId(i64::MAX),
                rows: 1000,
                tasks: 1000,
                classes: None,
                queues: None,
                created: Vec::new(),
                ended: Vec::new(),
                with_error: false,
                with_json: false,
            };
            let page = store.fixture.store.scan(&scan).await.expect("scan");
            for name in ["b", "c"] {
                let found = page.tasks.iter().find(|task| task.row.id == store.id(name));
                let found = found.unwrap_or_else(|| panic!("{name}: {:?}", scan.source));
                assert_eq!(found.row, store.row(name).await, "{:?}", scan.source);
            }
        }
        for row in &listed {
            assert_eq!(*row, store.fixture.details(row.id).await.row);
        }
        assert_eq!(store.row("b").await.is_blocked, blocked);
        assert!(store.row("c").await.is_blocked);
        assert_eq!(store.row("c").await.queue, "mail");
        if blocked {
            store.runs("a", Succeeds).await;
        }
    }
}

/// Blocked tasks are in no count of due tasks, in no list of next ones, and ahead of none. No
/// queue has another name because of them.
pub async fn blocked_tasks_are_not_due(db: &dyn TestDatabase) {
    let mut store = TestFlows::open(db).await;
    let mut flow = Flow::new().add("a", work());
    for n in 0..20 {
        flow = flow.add(format!("b{n}"), work().priority(-1)).after("a");
    }
    flow = flow.add("c", work().queue("mail").expect("a queue")).after("a");
    store.create(flow).await;
    store.create_plain("d", work().priority(5)).await;
    let queues = store.fixture.store.queues().await.expect("queues");
    let counted: Vec<_> = queues
        .iter()
        .map(|queue| (queue.name.as_str(), queue.due.counted, queue.later.counted))
        .filter(|(_, due, later)| due + later > 0)
        .collect();
    assert_eq!(counted, [("default", 2, 20), ("mail", 0, 1)]);
    for queue in &queues {
        assert!(!queue.name.contains(char::is_control), "{:?}", queue.name);
    }
    let query = ActivityQuery { per_lane: 100, soon: Duration::ZERO };
    let activity = store.fixture.store.activity(query).await.expect("activity");
    let mut next: Vec<_> =
        activity.next.iter().map(|one| (one.task_id, one.queue.as_str())).collect();
    next.sort();
    assert_eq!(next, [(store.id("a"), "default"), (store.id("d"), "default")]);
    let position = async |store: &TestFlows, name: &str| {
        let query = QueuePositionQuery {
            id: store.id(name),
            queues: vec!["default".to_owned(), "mail".to_owned()],
            classes: vec![WORK.to_owned()],
        };
        let position = store.fixture.store.queue_position(&query).await.expect("queue_position");
        position.map(|position| position.tasks.counted)
    };
    assert_eq!(position(&store, "d").await, Some(0));
    assert_eq!(position(&store, "a").await, Some(1), "only d is ahead");
    let checks = store.fixture.store.checks(CheckDepth::Deep).await.expect("checks");
    let bad: Vec<_> = checks
        .iter()
        .filter(|check| check.message.contains(char::is_control) || check.message.contains("mail"))
        .collect();
    assert!(bad.is_empty(), "{bad:?}");
    let ledger = checks.iter().find(|check| check.name == "ledger");
    assert!(ledger.is_none_or(|check| check.verdict == Verdict::Ok), "{ledger:?}");
    let inventory = store.fixture.store.inventory().await.expect("inventory");
    assert_eq!((inventory.waiting, inventory.running), (23, 0));
}

/// A dependency on a task that retention has removed says so.
pub async fn removed_dependency_is_listed(db: &dyn TestDatabase) {
    let mut store = TestFlows::with(db, flow_of(&[("a", &[]), ("b", &["a"])])).await;
    store.runs("a", Succeeds).await;
    store.runs("b", Succeeds).await;
    let id = store.id("a");
    store.fixture.store.delete(&[id]).await.expect("delete");
    let rows = store.dependencies("b").await;
    assert_eq!(rows.len(), 1);
    let (on, _, name, status) = brief(&rows[0]);
    assert_eq!((on, name, status), (id, None, None));
    let none = store.fixture.store.dependencies(&[TaskId(9_000_000)], 10).await;
    assert_eq!(none.expect("dependencies"), []);
    assert_eq!(store.fixture.store.dependents(id, 10).await.expect("dependents").len(), 1);
}

/// An open flow is exported, and its copy runs to its end as the original would: blocked,
/// restored and retried tasks, too.
pub async fn open_flow_is_exported(db: &dyn TestDatabase) {
    let mut store = TestFlows::open(db).await;
    let flow = flow_of(&[("a", &[]), ("b", &[]), ("c", &["a", "b"]), ("d", &["c"])])
        .add("e", work())
        .after_end(["a", "d"])
        .add("f", work())
        .after_failure(["c", "a"])
        .name("nightly")
        .correlation("n-1");
    store.create(flow).await;
    store.starts(&["a", "b"]).await;
    store.end("b", Fails).await;
    store.retry(&["b"]).await;
    store.states(&[("c", "blocked"), ("d", "blocked")]).await;
    store.end("a", Succeeds).await;
    let lines = export(&*store.fixture.store, &[]).await;
    let Some(ExportLine::Header(header)) = lines.first().cloned() else { panic!("a header") };
    let imported = import(&*store.fixture.store, &text(&lines), ImportIds::New).await;
    let ImportOutcome::Done { shift, .. } = imported.expect("import") else { panic!("refused") };
    assert_eq!(shift.tasks, header.last_task_id);
    store.is_consistent().await;
    let again = export(&*store.fixture.store, &[]).await;
    let record = |lines: &[ExportLine], id: TaskId| -> TaskRecord {
        let found = lines.iter().find_map(|line| match line {
            ExportLine::Task(task) if task.id == id.0 => Some((**task).clone()),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("task {id}"))
    };
    for name in ["a", "b", "c", "d", "e", "f"] {
        let id = store.id(name);
        let original = record(&lines, id);
        assert_eq!(record(&again, id), original, "{name}: the original stays");
        let copy = shift.apply(ExportLine::Task(Box::new(original)), &header);
        let moved = TaskId(id.0 + shift.tasks);
        let found = ExportLine::Task(Box::new(record(&again, moved)));
        assert_eq!(value(&found), value(&copy), "{name}");
        store.name(&format!("copy of {name}"), moved);
    }
    let rows = flows(&store.fixture, named("n-1")).await;
    assert_eq!((rows[0].name.as_deref(), rows[0].counts.total()), (Some("nightly"), 12));
    for prefix in ["", "copy of "] {
        let name = |name: &str| format!("{prefix}{name}");
        let states = async |store: &TestFlows, expected: [&str; 4]| {
            for (what, state) in ["c", "d", "e", "f"].into_iter().zip(expected) {
                assert_eq!(store.state(&name(what)).await, state, "{prefix}{what}");
            }
        };
        states(&store, ["blocked"; 4]).await;
        if prefix.is_empty() {
            store.starts(&["b", "copy of b"]).await;
        }
        store.end(&name("b"), Succeeds).await;
        states(&store, ["waiting", "blocked", "blocked", "blocked"]).await;
        store.runs(&name("c"), Succeeds).await;
        states(&store, ["stopped", "waiting", "blocked", "cancelled"]).await;
        store.runs(&name("d"), Fails).await;
        store.runs(&name("e"), Succeeds).await;
    }
}

/// A dependency that a filter left out of the file counts as removed.
pub async fn dependency_outside_export_counts_removed(db: &dyn TestDatabase) {
    let mut store = TestFlows::open(db).await;
    let flow = Flow::new()
        .add("a", work())
        .add("b", work())
        .after("a")
        .add("c", work())
        .after_end("a")
        .add("d", work())
        .after("c");
    store.create(flow).await;
    store.starts(&["a"]).await;
    let lines = export(&*store.fixture.store, &[TaskStatus::Waiting]).await;
    let imported = import(&*store.fixture.store, &text(&lines), ImportIds::New).await;
    let ImportOutcome::Done { shift, .. } = imported.expect("import") else { panic!("refused") };
    for name in ["b", "c", "d"] {
        store.name(&format!("copy of {name}"), TaskId(store.id(name).0 + shift.tasks));
    }
    store.fixture.resume_missed().await;
    store.states(&[("copy of b", "cancelled"), ("b", "blocked"), ("copy of d", "blocked")]).await;
    let error = store.error("copy of b").await;
    let removed = store.id("a").0 + shift.tasks;
    assert_eq!(error.message, format!("task {removed} was removed"));
    store.runs("copy of c", Succeeds).await;
    store.runs("copy of d", Succeeds).await;
}

fn value(line: &ExportLine) -> serde_json::Value {
    serde_json::to_value(line).expect("JSON")
}
