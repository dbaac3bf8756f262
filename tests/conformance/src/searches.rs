//! Searches and operations on their results: every store finds the tasks that match the
//! filter, in steps, and of an edit, a claim and a removal one wins.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::filter::{Filter, FoundTask};
use task_engine_core::json::Json;
use task_engine_core::task::Due;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_core::unique::{OnConflict, Unique};
use task_engine_operations::search::TIMEOUT;
use task_engine_operations::search::{Search, SearchPage};

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, WORK, new_instance, new_task, task_ids, with_classes};

const HOUR: Duration = Duration::from_secs(3600);
const UNKNOWN_TASK: TaskId = TaskId(987_654_321);

/// For every filter, the search finds the tasks that match it one by one.
pub async fn search_finds_matching_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let all = a_mixed_lot(&fixture).await;
    let (first, middle) = (all[0].row.id, all[all.len() / 2].row.id);
    let mut texts: Vec<String> = [
        "",
        "class=red",
        "class=red,blue queue=mail",
        "class~RE queue!=mail",
        "priority>=2 priority<4",
        "error~boom",
        "error!~boom",
        "instance=a",
        "instance!=a",
        "attempts>0 retries<1",
        "created>now-1h updated>now-1h",
        "created<now-1h",
        "created>2020-01-01 due>2000-01-01",
        "created<2020-01-01",
        "correlation=order-17",
        "correlation=order-17 status=failed",
        "correlation=order-17,order-18",
        "params.n>3 params.n<=6",
        "params.user.name=Ann",
        "params.user.name!=Ann status!=stopped",
        "context.correlation_id~order",
        "status=failed status=waiting",
        "id<0",
        "id=-5",
        "class=nothing",
        "due<now-30m",
        "due>now-30m status=waiting",
        "started>now-1h",
        "started>now-1h ended>now-1h",
        "ended<now-1h",
        "ended<2020-01-01",
        "started>now-1h status=running",
        "ended>now-1h status=failed,waiting error~boom",
        "status=waiting error~boom",
    ]
    .map(str::to_owned)
    .to_vec();
    texts.extend([
        format!("id={middle},{UNKNOWN_TASK},1"),
        format!("id>={middle}"),
        format!("id<{middle} status=failed"),
        format!("correlation={middle}"),
        format!("parent={first}"),
        format!("parent>={first} parent!={middle} status!=failed"),
        format!("parent!={first}"),
        format!("parent<{first}"),
    ]);
    for first in TaskStatus::ALL {
        texts.push(format!("status={first}"));
        texts.push(format!("status!={first}"));
        texts.push(format!("status={first} class=red"));
        for second in TaskStatus::ALL {
            texts.push(format!("status={first},{second}"));
        }
    }
    for text in texts {
        let filter = filter(&text);
        let now = jiff::Timestamp::now();
        let wanted: Vec<_> =
            all.iter().rev().filter(|it| filter.matches(it, now)).map(|it| it.row.id).collect();
        // One step a time, three tasks a page, and whole.
        for (limit, timeout) in [(3, Duration::ZERO), (1000, TIMEOUT)] {
            let found = pages(&fixture, &filter, limit, timeout).await;
            assert_eq!(found, wanted, "{text}");
        }
    }
}

/// A search without matches stops after the step in which its time is over, reports how
/// far it read, and ends when it is continued.
pub async fn rare_match_needs_bounded_steps(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let rare = fixture.create(new_task("rare")).await;
    fixture.create_all(&vec![new_task("common"); 25_000]).await;
    for (text, steps_at_least) in [("class=rare", 2), ("priority>5 id<2000", 3)] {
        let mut search =
            Search { filter: filter(text), before: None, limit: 10, timeout: Duration::ZERO };
        let (mut steps, mut found) = (0, Vec::new());
        loop {
            let page = search.run(&*fixture.store).await.expect("search");
            steps += 1;
            found.extend(page.tasks.iter().map(|task| task.row.id));
            match page.next {
                Some(next) => {
                    assert!(search.before.is_none_or(|before| next < before), "it goes down");
                    search.before = Some(next);
                }
                None => break,
            }
        }
        assert!(steps >= steps_at_least, "{text}: {steps} steps");
        let wanted = if text.contains("rare") { vec![rare] } else { vec![] };
        assert_eq!(found, wanted, "{text}");
    }
}

/// Tasks that change while a search runs are found or not. Tasks that do not change are
/// found, each once.
pub async fn search_skips_no_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    fixture.create_all(&vec![new_task(WORK); 300]).await;
    let stays = fixture.create_all(&vec![new_task("other"); 300]).await;
    let searching = fixture.clone();
    let search = tokio::spawn(async move {
        let filter = filter("status=waiting,running,failed");
        pages(&searching, &filter, 7, Duration::ZERO).await
    });
    for _ in 0..30 {
        let holds = engine.claim(10).await;
        let endings: Vec<_> = holds.iter().map(TestAttempt::fails).collect();
        engine.record(&endings).await;
    }
    let found = search.await.expect("the search");
    let once: BTreeSet<_> = found.iter().copied().collect();
    assert_eq!(once.len(), found.len(), "each once");
    assert!(stays.iter().all(|id| once.contains(id)), "those that stay are found");
}

/// An edit changes only the named fields, and a changed time wakes engines at that time.
pub async fn edit_changes_named_fields(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let id = fixture.create(new_task(WORK).after(HOUR).priority(3)).await;
    let before = fixture.details(id).await;

    let all = Edit {
        parameters: Some(Json::parse(r#"{"big":1970670598291982290123456789}"#).expect("JSON")),
        ..Edit::default()
    };
    assert_eq!(edit(&fixture, id, &all).await, EditReport::Changed);
    let after = fixture.details(id).await;
    assert_eq!(after.row, before.row, "all else stays");
    assert_eq!(
        after.parameters.as_str().replace(' ', ""),
        r#"{"big":1970670598291982290123456789}"#
    );

    let place = Edit {
        priority: Some(-7),
        queue: Some("elsewhere".to_owned()),
        due: Some(Due::After(2 * HOUR)),
        ..Edit::default()
    };
    assert_eq!(edit(&fixture, id, &place).await, EditReport::Changed);
    let row = fixture.details(id).await.row;
    assert_eq!((row.priority, row.queue.as_str()), (-7, "elsewhere"));
    let moved = row.scheduled_at.duration_since(before.row.scheduled_at);
    assert!(moved.as_secs() >= 3599, "an hour later: {moved}");
    assert_eq!(engine.claim_all(10).await.len(), 0);

    let at = fixture.now().await;
    let now = Edit { due: Some(Due::At(at)), queue: Some("default".to_owned()), ..Edit::default() };
    assert_eq!(edit(&fixture, id, &now).await, EditReport::Changed);
    assert_eq!(fixture.details(id).await.row.scheduled_at, at);
    let hold = engine.claim_one().await;
    assert_eq!((hold.task.id.attempt, hold.task.priority), (1, -7));
    assert_eq!(
        hold.task.parameters.as_str().replace(' ', ""),
        r#"{"big":1970670598291982290123456789}"#
    );

    // A retry that waits keeps its numbers.
    engine.record(&[hold.fails_and_retries(HOUR)]).await;
    let number = fixture.details(id).await.row.retry_number;
    let soon = Edit { due: Some(Due::Now), ..Edit::default() };
    assert_eq!(edit(&fixture, id, &soon).await, EditReport::Changed);
    let again = engine.claim_one().await;
    assert_eq!((again.task.id.attempt, again.task.retry_number as i32), (2, number));
}

/// A running or ended task is not edited.
pub async fn only_waiting_tasks_are_edited(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let ids = fixture.create_work(4).await;
    let holds = engine.claim(4).await;
    engine.record(&[holds[0].succeeds(), holds[1].fails(), holds[2].is_cancelled()]).await;
    let change = Edit { priority: Some(9), ..Edit::default() };
    for (id, status) in ids.iter().zip([
        TaskStatus::Stopped,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
        TaskStatus::Running,
    ]) {
        assert_eq!(edit(&fixture, *id, &change).await, EditReport::NotWaiting(status));
        assert_eq!(fixture.details(*id).await.row.priority, 0, "{status}");
    }
    assert_eq!(edit(&fixture, UNKNOWN_TASK, &change).await, EditReport::NotFound);
}

/// An edit and a claim at the same time: either the engine has the new parameters, or the
/// edit reports that it came too late and the engine has the old ones.
pub async fn edit_and_claim_have_one_winner(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let other = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let changed = Json::parse(r#"{"new":true}"#).expect("JSON");
    let mut won = BTreeMap::new();
    for round in 0..40 {
        let ids = fixture.create_work(4).await;
        let change = Edit { parameters: Some(changed.clone()), ..Edit::default() };
        let editing = async {
            let mut reports = BTreeMap::new();
            for id in &ids {
                reports.insert(*id, edit(&other, *id, &change).await);
            }
            reports
        };
        let claiming = async {
            let mut holds = Vec::new();
            while holds.len() < ids.len() {
                // A claim skips a task that is being edited. It waits again afterwards.
                engine.wake();
                holds.extend(engine.claim_all(2).await);
            }
            holds
        };
        let (reports, holds) = tokio::join!(editing, claiming);
        let got: BTreeSet<_> = task_ids(&holds).into_iter().collect();
        assert_eq!(got, ids.iter().copied().collect(), "round {round}: each is claimed once");
        for hold in &holds {
            let is_new = hold.task.parameters.as_str().contains("new");
            let stored = fixture.details(hold.task_id()).await;
            assert_eq!(stored.parameters.as_str().contains("new"), is_new, "round {round}");
            let wanted = match reports[&hold.task_id()] {
                EditReport::Changed => true,
                EditReport::NotWaiting(TaskStatus::Running) => false,
                other => panic!("round {round}: {other:?}"),
            };
            assert_eq!(is_new, wanted, "round {round}");
            *won.entry(is_new).or_insert(0) += 1;
            assert_eq!(hold.task.id.attempt, 1);
        }
        let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
        assert_eq!(engine.record(&endings).await, []);
    }
    assert_eq!(won.values().sum::<i32>(), 160);
}

/// An ended task is removed completely. A waiting or running task is never removed.
pub async fn only_ended_tasks_are_removed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let ids = fixture.create_work(5).await;
    let holds = engine.claim(4).await;
    engine.record(&[holds[0].succeeds(), holds[1].fails(), holds[2].is_cancelled()]).await;
    // An engine that still holds the batch may need the record of its endings:
    // on some stores they wait until it has let go.
    let reports = remove(&fixture, &[ids[3], ids[4], UNKNOWN_TASK]).await;
    assert_eq!(
        reports,
        [
            DeleteReport::Open(TaskStatus::Running),
            DeleteReport::Open(TaskStatus::Waiting),
            DeleteReport::NotFound
        ]
    );
    engine.record(&[holds[3].succeeds()]).await;
    engine.finish(holds[3].claim_id).await;
    let reports = remove(&fixture, &ids[..4]).await;
    assert_eq!(reports, [DeleteReport::Deleted; 4]);
    assert_eq!(remove(&fixture, &ids[..1]).await, [DeleteReport::NotFound], "gone is gone");
    let left: Vec<_> = fixture.list(None).await.iter().map(|row| row.id).collect();
    assert_eq!(left, [ids[4]]);
}

/// With a task its key is free again, and a key that belongs to another stays.
pub async fn removed_task_frees_its_key(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let keyed =
        || new_task(WORK).unique(Unique::by("k").on_conflict(OnConflict::Keep)).expect("a key");
    let old = fixture.create(keyed()).await;
    let hold = engine.claim_one().await;
    engine.record(&[hold.fails()]).await;
    engine.finish(hold.claim_id).await;
    let new = fixture.create(keyed()).await;
    assert_ne!(old, new);
    assert_eq!(remove(&fixture, &[old]).await, [DeleteReport::Deleted]);
    assert_eq!(fixture.create(keyed()).await, new, "its key is not touched");
}

/// A retry and a removal of a task at the same time: the task waits, or it is removed.
pub async fn removal_and_retry_have_one_winner(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let other = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for round in 0..20 {
        let ids = fixture.create_work(4).await;
        let holds = engine.claim(4).await;
        let endings: Vec<_> = holds.iter().map(TestAttempt::fails).collect();
        engine.record(&endings).await;
        engine.finish(holds[0].claim_id).await;
        let (reports, _) = tokio::join!(remove(&fixture, &ids), other.store.retry(&ids));
        for (id, report) in ids.iter().zip(reports) {
            let task = fixture.store.task(*id).await.expect("task");
            match report {
                DeleteReport::Deleted => assert_eq!(task, None, "round {round}"),
                DeleteReport::Open(TaskStatus::Waiting) => {
                    assert_eq!(task.expect("it is there").row.status, TaskStatus::Waiting);
                }
                other => panic!("round {round}: {other:?}"),
            }
        }
        let left = engine.claim_all(10).await;
        let endings: Vec<_> = left.iter().map(TestAttempt::succeeds).collect();
        engine.record(&endings).await;
    }
}

/// A rerun creates an equal task whose context names the original.
pub async fn rerun_creates_task_in_same_flow(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let parameters = Json::parse(r#"{"big":1970670598291982290123456789}"#).expect("JSON");
    let task = NewTask::new(WORK, parameters).expect("a task").priority(4);
    let task = task.unique(Unique::by("once")).expect("a key");
    let old = fixture.create(task).await;
    let hold = engine.claim_one().await;
    engine.record(&[hold.succeeds()]).await;
    let details = fixture.details(old).await;
    let new = fixture.create(NewTask::rerun_of(&details).expect("a rerun")).await;
    assert_ne!(new, old);
    let rerun = fixture.details(new).await;
    assert_eq!(rerun.parameters, details.parameters);
    assert_eq!((rerun.row.priority, rerun.row.class.as_str()), (4, WORK));
    assert_eq!(rerun.correlation_id, old.to_string(), "the flow that the old one began");
    let context: BTreeMap<String, serde_json::Value> = rerun.context.decode().expect("an object");
    assert_eq!(context["rerun_of"], old.0);
    assert!(
        !context.contains_key("unique_key"),
        "what was unique was the cancel_request, not the rerun"
    );
    let found = pages(&fixture, &filter(&format!("context.rerun_of={old}")), 10, TIMEOUT).await;
    assert_eq!(found, [new]);
}

/// Tasks in every status, of several classes, queues, flows and parameters, with all
/// fields that a filter can use, oldest first.
async fn a_mixed_lot(fixture: &Fixture) -> Vec<FoundTask> {
    let rules = ["red", "blue"].map(|class| (class, task_engine_core::retry::RetryRule::default()));
    let mut engine = fixture.register(with_classes(new_instance("a"), &rules)).await;
    for round in 0..2 {
        let mut tasks = Vec::new();
        for n in 0..7 {
            let name = if n % 2 == 0 { "Ann" } else { "Bob" };
            let json = format!(r#"{{"n":{n},"user":{{"name":"{name}"}}}}"#);
            let class = ["red", "blue"][n % 2];
            let task = NewTask::new(class, Json::parse(&json).expect("JSON")).expect("a task");
            let mut task = task.priority(n as i32 % 5);
            if n % 3 == 1 {
                task = task.correlation(format!("order-{}", 17 + round)).expect("a flow");
            }
            tasks.push(task);
        }
        fixture.create_all(&tasks).await;
        let mut holds = engine.claim_all(7).await;
        holds.sort_by_key(TestAttempt::task_id);
        engine
            .record(&[
                holds[0].succeeds(),
                holds[1].fails(),
                holds[2].is_cancelled(),
                holds[3].fails_and_retries(HOUR),
                holds[4].fails(),
                holds[5].fails(),
            ])
            .await;
        // One that failed and was retried by an operator.
        fixture.store.retry(&[holds[5].task_id()]).await.expect("retry");
        fixture.create(new_task("red").queue("mail").expect("a queue").after(HOUR)).await;
        if round == 0 {
            let more = engine.claim_one().await;
            engine.record(&[more.fails()]).await;
        }
    }
    let oldest = fixture.list(None).await.last().expect("a task").id;
    let context = format!(r#"{{"correlation_id":"order-17","parent_id":{oldest}}}"#);
    let mut child = new_task("red");
    child.context = Json::parse(&context).expect("JSON");
    fixture.create_all(&[child.clone(), child.after(HOUR)]).await;
    let mut all = Vec::new();
    for row in fixture.list(None).await.into_iter().rev() {
        let details = fixture.details(row.id).await;
        let last = details.executions.last();
        all.push(FoundTask {
            started_at: last.and_then(|last| last.started_at),
            ended_at: last.and_then(|last| last.stopped_at),
            row,
            correlation_id: details.correlation_id,
            parent_id: details.parent_id,
            parameters: details.parameters,
            context: details.context,
        });
    }
    for status in TaskStatus::ALL {
        assert!(all.iter().any(|task| task.row.status == status), "some are {status}");
    }
    all
}

fn filter(text: &str) -> Filter {
    Filter::parse(text, &jiff::tz::TimeZone::UTC).expect(text)
}

async fn pages(fixture: &Fixture, filter: &Filter, limit: u32, timeout: Duration) -> Vec<TaskId> {
    let mut search = Search { filter: filter.clone(), before: None, limit, timeout };
    let mut found = Vec::new();
    loop {
        let SearchPage { tasks, next, .. } = search.run(&*fixture.store).await.expect("search");
        assert!(tasks.len() <= limit as usize);
        found.extend(tasks.iter().map(|task| task.row.id));
        match next {
            Some(next) => search.before = Some(next),
            None => return found,
        }
    }
}

async fn edit(fixture: &Fixture, id: TaskId, edit: &Edit) -> EditReport {
    fixture.store.edit(id, edit).await.expect("edit")
}

async fn remove(fixture: &Fixture, ids: &[TaskId]) -> Vec<DeleteReport> {
    fixture.store.delete(ids).await.expect("remove")
}
