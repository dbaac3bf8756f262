//! Tasks that depend on others start after these have ended, get their results, and end
//! whatever happens to these.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use task_engine::core::attempt::{AttemptRecord, NextState};
use task_engine::core::claim::ClaimIds;
use task_engine::core::flow::Origin;
use task_engine::core::instance::NewInstance;
use task_engine::core::queue::Lanes;
use task_engine::core::task::{TaskDetails, TaskListQuery};
use task_engine::limit::LimitOptions;
use task_engine::store::contract::RetryReport;
use task_engine::{
    Batch, CancelReport, Context, CreateError, Engine, Failure, Flow, FlowState, FlowTasks,
    InvalidFlow, NewTask, RetryRule, Task, TaskEngine, TaskError, TaskId, TaskOptions, TaskStatus,
};

use crate::store::{Fresh, nothing, on_every_store, start, task};

on_every_store! {
    tasks_run_in_order_with_results
    conditions_decide_what_runs
    task_depends_on_existing_tasks
    dependency_on_missing_task_is_refused
    retried_parent_restores_dependents
    cancelled_parent_cancels_dependents
    batch_runs_callbacks
    member_adds_members
    members_need_dependents
    flow_of_task_belongs_to_its_flow
    invalid_flows_create_nothing
    hooks_see_tasks_of_flows
    unresolved_end_is_found_by_heartbeat
    recovered_parent_lets_dependents_end
    released_parent_runs_again
    durable_and_limited_tasks_take_part
}

/// What a task does, and returns.
fn work(says: &str) -> NewTask {
    task("work", json!({ "says": says }))
}

/// Fails in its first attempt; an operator may retry it.
fn fails() -> NewTask {
    task("work", json!({ "says": "at last", "fails": true }))
}

/// Returns what it reads of the tasks that it depends on.
fn reads() -> NewTask {
    task("reads", nothing())
}

async fn do_work(parameters: Value, cx: Context<()>) -> Result<Value, Failure> {
    if parameters["fails"] == true && cx.attempt() == 1 {
        return Err(Failure::named("Closed", "not today"));
    }
    Ok(parameters["says"].clone())
}

async fn read_parents(_: Value, cx: Context<()>) -> Result<BTreeMap<String, Value>, Failure> {
    let read = |parent: task_engine::EndedDependency| {
        let seen = match (&parent.result, &parent.error) {
            (Some(result), None) => result.decode().unwrap(),
            (None, Some(error)) => json!([parent.status, error.exception]),
            _ => panic!("{parent:?}"),
        };
        (parent.name.unwrap_or_else(|| "unnamed".to_owned()), seen)
    };
    Ok(cx.dependencies().await?.into_iter().map(read).collect())
}

fn once() -> TaskOptions {
    TaskOptions::default().retry(RetryRule::never())
}

fn tasks(fresh: &Fresh) -> TaskEngine {
    TaskEngine::new(fresh.store.clone())
}

fn engine(fresh: &Fresh) -> Engine<()> {
    fresh.engine().handle_class("work", once(), do_work).handle_class("reads", once(), read_parents)
}

fn result(task: &TaskDetails) -> Value {
    let last = task.executions.last().expect("it has run");
    last.result.as_ref().unwrap_or_else(|| panic!("{task:#?}")).decode().unwrap()
}

fn error(task: &TaskDetails) -> &TaskError {
    task.executions.last().and_then(|last| last.error.as_ref()).expect("it has an error")
}

/// Waits for the ends of all tasks.
async fn ends(fresh: &Fresh, flow: &FlowTasks) -> BTreeMap<String, TaskDetails> {
    let mut ends = BTreeMap::new();
    for (name, id) in &flow.ids {
        ends.insert(name.clone(), fresh.until_ended(*id).await);
    }
    ends
}

fn statuses(ends: &BTreeMap<String, TaskDetails>) -> Vec<(&str, TaskStatus)> {
    ends.iter().map(|(name, task)| (name.as_str(), task.row.status)).collect()
}

fn started_after(task: &TaskDetails, parent: &TaskDetails) -> bool {
    let started = task.executions.last().unwrap().started_at.unwrap();
    started >= parent.executions.last().unwrap().stopped_at.unwrap()
}

async fn count(fresh: &Fresh) -> usize {
    let all = TaskListQuery { limit: 100, ..TaskListQuery::default() };
    fresh.store.tasks(&all).await.unwrap().len()
}

use TaskStatus::{Cancelled, Failed, Stopped};

async fn tasks_run_in_order_with_results(fresh: Fresh) {
    let join = async |_: Value, cx: Context<()>| {
        let all: BTreeMap<String, Value> = BTreeMap::from([
            ("a".to_owned(), cx.result_of("a").await?),
            ("b".to_owned(), cx.result_of("b").await?),
        ]);
        let missing = cx.result_of::<Value>("c").await.unwrap_err().to_string();
        assert!(missing.starts_with("this task does not depend on \"c\"; it depends on task "));
        assert!(missing.contains(" (a), task "), "{missing}");
        let wrong = cx.result_of::<u64>("a").await.unwrap_err().to_string();
        assert!(wrong.contains("(a) is no u64: "), "{wrong}");
        Ok::<_, Failure>(all)
    };
    let flow = Flow::new()
        .name("nightly")
        .correlation("nightly 1")
        .add("join", task("join", nothing()))
        .after(["a", "b"])
        .add("a", reads())
        .after("first")
        .add("b", work("b"))
        .after("first")
        .add("first", work("one"));
    let created = tasks(&fresh).create_flow(flow).await.unwrap();
    assert_eq!(created.correlation_id, "nightly 1");
    assert_eq!(created.ids.len(), 4);
    assert_eq!((created.id("first"), created.id("last")), (Some(created["first"]), None));
    for (name, blocked) in [("first", false), ("a", true), ("b", true), ("join", true)] {
        let row = fresh.details(created[name]).await.row;
        assert_eq!((row.status, row.is_blocked), (TaskStatus::Waiting, blocked), "{name}");
    }
    let status = tasks(&fresh).flow_status("nightly 1").await.unwrap().unwrap();
    assert_eq!(status.name.as_deref(), Some("nightly"));
    assert_eq!((status.counts.blocked, status.counts.waiting), (3, 1));
    assert_eq!(status.counts.state(), FlowState::Open);
    let engine = start(engine(&fresh).handle_class("join", once(), join));
    let ends = ends(&fresh, &created).await;
    engine.stop().await;
    assert_eq!(result(&ends["a"]), json!({"first": "one"}));
    assert_eq!(result(&ends["join"]), json!({"a": {"first": "one"}, "b": "b"}));
    for (task, parent) in [("a", "first"), ("b", "first"), ("join", "a"), ("join", "b")] {
        assert!(started_after(&ends[task], &ends[parent]), "{task} after {parent}");
    }
    assert!(ends.values().all(|task| task.correlation_id == "nightly 1"));
    let status = tasks(&fresh).flow_status("nightly 1").await.unwrap().unwrap();
    assert_eq!((status.counts.stopped, status.counts.state()), (4, FlowState::Succeeded));
    assert_eq!(tasks(&fresh).flow_status("nightly 2").await.unwrap(), None);
    fresh.assert_sound().await;
}

fn with_every_condition(first: NewTask) -> Flow {
    Flow::new()
        .add("first", first)
        .add("success", reads())
        .after("first")
        .add("later", reads())
        .after("success")
        .add("end", reads())
        .after_end(["first", "later"])
        .add("failure", reads())
        .after_failure("first")
}

async fn conditions_decide_what_runs(fresh: Fresh) {
    let failing = tasks(&fresh).create_flow(with_every_condition(fails())).await.unwrap();
    let succeeding = tasks(&fresh).create_flow(with_every_condition(work("x"))).await.unwrap();
    let engine = start(engine(&fresh));
    let ended = ends(&fresh, &failing).await;
    assert_eq!(
        statuses(&ended),
        [
            ("end", Stopped),
            ("failure", Stopped),
            ("first", Failed),
            ("later", Cancelled),
            ("success", Cancelled)
        ]
    );
    assert_eq!(error(&ended["success"]).exception, TaskError::DEPENDENCY_FAILED);
    assert_eq!(
        error(&ended["success"]).message,
        format!("task {} (first) failed", failing["first"])
    );
    assert_eq!(
        error(&ended["later"]).message,
        format!("task {} (success) was cancelled", failing["success"])
    );
    assert_eq!(result(&ended["failure"]), json!({"first": ["failed", "Closed"]}));
    assert_eq!(
        result(&ended["end"]),
        json!({"first": ["failed", "Closed"], "later": ["cancelled", "DependencyFailed"]})
    );
    let ended = ends(&fresh, &succeeding).await;
    assert_eq!(ended["failure"].row.status, Cancelled);
    assert_eq!(error(&ended["failure"]).exception, TaskError::NOT_NEEDED);
    assert!(["end", "first", "later", "success"].iter().all(|n| ended[*n].row.status == Stopped));
    engine.stop().await;
    let state = async |flow: &FlowTasks| {
        let row = tasks(&fresh).flow_status(&flow.correlation_id).await.unwrap().unwrap();
        row.counts.state()
    };
    assert_eq!(state(&failing).await, FlowState::Failed);
    assert_eq!(state(&succeeding).await, FlowState::Succeeded);
    fresh.assert_sound().await;
}

/// The class of [`reads`], as a type.
#[derive(serde::Serialize, serde::Deserialize)]
struct Reads {}

impl Task for Reads {
    const CLASS: &'static str = "reads";
}

async fn task_depends_on_existing_tasks(fresh: Fresh) {
    let tasks = tasks(&fresh);
    let ids = tasks.create_many(&[work("a"), fails()]).await.unwrap();
    let create = || tasks.create(Reads {});
    let after_one = create().after_task(ids[0]).await.unwrap();
    let after_both = create().after_task_end(ids.clone()).correlation("mine").await.unwrap();
    let after_failure = create().after_task_failure([ids[0], ids[1]]).priority(3).await.unwrap();
    let cancelled = create().after_task(ids[0]).after_task(ids[1]).await.unwrap();
    assert!(fresh.details(after_failure).await.row.is_blocked);
    assert_eq!(fresh.details(after_failure).await.row.priority, 3);
    assert_eq!(fresh.details(after_one).await.correlation_id, ids[0].to_string());
    assert_eq!(fresh.details(after_both).await.correlation_id, "mine");
    let engine = start(engine(&fresh));
    let one = fresh.until_ended(after_one).await;
    assert_eq!(result(&one), json!({"unnamed": "a"}));
    for id in [after_both, after_failure] {
        assert_eq!(fresh.until_ended(id).await.row.status, Stopped);
    }
    assert_eq!(fresh.until_ended(cancelled).await.row.status, Cancelled);
    // The end of a task may be known before.
    let late = create().after_task(ids[0]).after_task_failure(ids[1]).await.unwrap();
    assert_eq!(fresh.until_ended(late).await.row.status, Stopped);
    let too_late = create().after_task(ids[1]).await.unwrap();
    assert_eq!(fresh.until_ended(too_late).await.row.status, Cancelled);
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn dependency_on_missing_task_is_refused(fresh: Fresh) {
    let tasks = tasks(&fresh);
    let missing = tasks.create(Reads {}).after_task(TaskId(17)).await.unwrap_err();
    assert!(matches!(missing, CreateError::Store(_)), "{missing:?}");
    let text = missing.to_string();
    assert!(text.contains("task 17 does not exist, or was removed"), "{text}");
    let flow = Flow::new().add("a", work("a")).add("b", work("b")).after_end(TaskId(17));
    let text = tasks.create_flow(flow).await.unwrap_err().to_string();
    assert!(text.contains("task 17 does not exist, or was removed"), "{text}");
    let named = tasks.create(Reads {}).after_task("extract").await.unwrap_err().to_string();
    assert_eq!(named, r#"task "reads" depends on "extract", which is no task of the flow"#);
    let unique = tasks.create(Reads {}).after_task(TaskId(1)).unique("k").await.unwrap_err();
    assert!(matches!(unique, CreateError::Flow(InvalidFlow::UniqueTask(_))), "{unique:?}");
    assert_eq!(count(&fresh).await, 0);
}

async fn retried_parent_restores_dependents(fresh: Fresh) {
    let created = tasks(&fresh).create_flow(with_every_condition(fails())).await.unwrap();
    let engine = start(engine(&fresh));
    ends(&fresh, &created).await;
    assert_eq!(fresh.store.retry(&[created["first"]]).await.unwrap(), [RetryReport::Waiting]);
    for name in ["first", "success", "later"] {
        let task = fresh.until_status(created[name], Stopped).await;
        assert_eq!(task.executions.len(), 2, "{name}");
    }
    assert_eq!(result(&fresh.details(created["success"]).await), json!({"first": "at last"}));
    for name in ["end", "failure"] {
        assert_eq!(fresh.details(created[name]).await.executions.len(), 1, "{name} ran before");
    }
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn cancelled_parent_cancels_dependents(fresh: Fresh) {
    let tasks = tasks(&fresh);
    let flow = Flow::new()
        .add("first", work("a").after(Duration::from_secs(3600)))
        .add("second", work("b"))
        .after("first")
        .add("third", work("c"))
        .after("second")
        .add("alert", reads())
        .after_failure("first");
    let one = tasks.create_flow(flow.clone()).await.unwrap();
    let other = tasks.create_flow(flow).await.unwrap();
    let engine = start(engine(&fresh));
    assert_eq!(tasks.cancel(one["first"]).await.unwrap(), CancelReport::Cancelled);
    let ended = ends(&fresh, &one).await;
    assert_eq!(
        statuses(&ended),
        [("alert", Stopped), ("first", Cancelled), ("second", Cancelled), ("third", Cancelled)]
    );
    // A blocked task.
    assert_eq!(tasks.cancel(other["second"]).await.unwrap(), CancelReport::Cancelled);
    assert_eq!(fresh.until_ended(other["third"]).await.row.status, Cancelled);
    assert_eq!(fresh.details(other["first"]).await.row.status, TaskStatus::Waiting);
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn batch_runs_callbacks(fresh: Fresh) {
    let batch = |members: Vec<NewTask>| {
        Batch::new()
            .name("render")
            .members(members)
            .on_success(reads())
            .on_failure(reads())
            .on_end(reads())
    };
    let tasks = tasks(&fresh);
    let good = tasks.create_flow(batch(vec![work("a"), work("b")])).await.unwrap();
    let bad = tasks.create_flow(batch(vec![work("a"), fails()])).await.unwrap();
    let status = tasks.flow_status(&good.correlation_id).await.unwrap().unwrap();
    assert_eq!((status.counts.ended(), status.counts.total()), (0, 5));
    let engine = start(engine(&fresh));
    let ended = ends(&fresh, &good).await;
    assert_eq!(
        statuses(&ended),
        [
            ("member 1", Stopped),
            ("member 2", Stopped),
            ("on_end", Stopped),
            ("on_failure", Cancelled),
            ("on_success", Stopped)
        ]
    );
    assert_eq!(result(&ended["on_success"]), json!({"member 1": "a", "member 2": "b"}));
    let ended = ends(&fresh, &bad).await;
    assert_eq!(
        statuses(&ended),
        [
            ("member 1", Stopped),
            ("member 2", Failed),
            ("on_end", Stopped),
            ("on_failure", Stopped),
            ("on_success", Cancelled)
        ]
    );
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn member_adds_members(fresh: Fresh) {
    let crawl = async |parameters: Value, cx: Context<()>| {
        let depth = parameters["depth"].as_u64().unwrap();
        if depth > 0 {
            let found = (0..2).map(|_| task("crawl", json!({ "depth": depth - 1 })));
            let added = cx.step("add", || cx.add_members(found)).await?;
            assert_eq!(added.len(), 2);
        }
        assert_eq!(cx.add_members(Vec::<NewTask>::new()).await?, []);
        Ok::<_, Failure>(depth)
    };
    let count_parents =
        async |_: Value, cx: Context<()>| Ok::<_, Failure>(cx.dependencies().await?.len());
    let batch = Batch::new()
        .member(task("crawl", json!({"depth": 2})))
        .on_success(task("count", nothing()))
        .on_end(task("count", nothing()))
        .on_failure(reads());
    let created = tasks(&fresh).create_flow(batch).await.unwrap();
    let engine = start(engine(&fresh).handle_class("crawl", once(), crawl).handle_class(
        "count",
        once(),
        count_parents,
    ));
    let ended = ends(&fresh, &created).await;
    engine.stop().await;
    for callback in ["on_success", "on_end"] {
        assert_eq!(result(&ended[callback]), json!(7), "{callback}");
    }
    assert_eq!(error(&ended["on_failure"]).exception, TaskError::NOT_NEEDED);
    let status = tasks(&fresh).flow_status(&created.correlation_id).await.unwrap().unwrap();
    assert_eq!(status.counts.total(), 7 + 3);
    fresh.assert_sound().await;
}

async fn members_need_dependents(fresh: Fresh) {
    let add = async |_: Value, cx: Context<()>| {
        cx.add_members([work("a")]).await?;
        Ok::<_, Failure>(())
    };
    let id = fresh.create("alone", nothing()).await;
    let engine = start(engine(&fresh).handle_class("alone", once(), add));
    let ended = fresh.until_ended(id).await;
    engine.stop().await;
    let expected = format!("task {id} cannot add members: no task that has not started depends");
    assert!(error(&ended).message.starts_with(&expected), "{:?}", error(&ended));
    assert_eq!(count(&fresh).await, 1);
}

async fn flow_of_task_belongs_to_its_flow(fresh: Fresh) {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let begin = async |_: Value, cx: Context<()>| {
        let flow = Flow::new().add("a", work("a")).add("b", reads()).after("a");
        let created = cx.tasks().create_flow(flow).await?;
        assert_eq!(created.correlation_id, cx.correlation_id());
        let after = cx.create(Reads {}).after_task(created["b"]).await?;
        Ok::<_, Failure>([created["a"], created["b"], after])
    };
    let traced = task("begin", nothing()).traceparent(TRACE).unwrap();
    let id = fresh.store.create(&[traced]).await.unwrap()[0];
    let engine = start(engine(&fresh).handle_class("begin", once(), begin));
    let begun = fresh.until_status(id, Stopped).await;
    let created: [TaskId; 3] = serde_json::from_value(result(&begun)).unwrap();
    for child in created {
        let child = fresh.until_status(child, Stopped).await;
        let trace = Origin::of(child.row.id, &child.context).traceparent;
        assert_eq!(trace.map(|trace| trace.to_string()).as_deref(), Some(TRACE));
        assert_eq!((child.correlation_id, child.parent_id), (id.to_string(), Some(id)));
    }
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn invalid_flows_create_nothing(fresh: Fresh) {
    let tasks = tasks(&fresh);
    let invalid = [
        Flow::new(),
        Flow::new().add("a", work("a")).after("a"),
        Flow::new().add("a", work("a")).add("a", work("b")),
        Flow::new().add("a", work("a")).add("b", work("b")).after("c"),
        Flow::new().add("a", work("a")).add("b", work("b")).after("a").after_end("a"),
        Batch::new().on_end(work("a")).into(),
    ];
    for flow in invalid {
        let refused = tasks.create_flow(flow.clone()).await.unwrap_err();
        assert!(matches!(refused, CreateError::Flow(_)), "{flow:?}: {refused:?}");
    }
    let wide = (0..=10_000).fold(Flow::new(), |flow, n| flow.add(n.to_string(), work("a")));
    let text = tasks.create_flow(wide).await.unwrap_err().to_string();
    assert_eq!(text, "a flow has at most 10000 tasks, this one has 10001");
    // As with any creation: one that the store refuses.
    let limited = work("a").limit("unknown", "k").unwrap();
    let flow = Flow::new().add("a", work("a")).add("b", limited).after("a");
    assert!(matches!(tasks.create_flow(flow).await.unwrap_err(), CreateError::Store(_)));
    assert_eq!(count(&fresh).await, 0);
    fresh.assert_sound().await;
}

async fn hooks_see_tasks_of_flows(fresh: Fresh) {
    let tasks = tasks(&fresh).creation_hook(|task: &mut NewTask| {
        task.priority += 1;
        task.add_context("tenant", &7)?;
        if task.class == "forbidden" {
            return Err(task_engine::Refusal::because("not here"));
        }
        Ok(())
    });
    let flow = Flow::new().add("a", work("a")).add("b", work("b")).after("a");
    let created = tasks.create_flow(flow.clone()).await.unwrap();
    let dependent = tasks.create(Reads {}).after_task(created["b"]).await.unwrap();
    for id in [created["a"], created["b"], dependent] {
        let details = fresh.details(id).await;
        assert_eq!(details.row.priority, 1);
        assert_eq!(details.context.decode::<Value>().unwrap()["tenant"], 7);
    }
    let forbidden = flow.add("c", task("forbidden", nothing()));
    let refused = tasks.create_flow(forbidden).await.unwrap_err();
    assert!(matches!(refused, CreateError::Refused { .. }), "{refused:?}");
    assert_eq!(count(&fresh).await, 3);
}

/// An engine that will not run, with a claim of the only due task.
async fn doomed(fresh: &Fresh) -> (NewInstance, ClaimIds, task_engine::core::instance::InstanceId) {
    let doomed = NewInstance {
        name: "doomed".to_owned(),
        host: "elsewhere".to_owned(),
        pid: 1,
        process: None,
        version: "0".to_owned(),
        workers: 1,
        lease: Duration::from_secs(60),
        queues: vec!["default".to_owned()],
        pools: Vec::new(),
        classes: BTreeMap::from([("work".to_owned(), once())]),
    };
    let instance = fresh.store.register(&doomed).await.unwrap();
    (doomed, ClaimIds::new(instance), instance)
}

/// The engine dies after it has recorded the end of a task, and before it looks for those that
/// wait for it.
async fn unresolved_end_is_found_by_heartbeat(fresh: Fresh) {
    let flow = Flow::new()
        .add("first", work("one"))
        .add("second", reads())
        .after("first")
        .add("alert", reads())
        .after_failure("first");
    let created = tasks(&fresh).create_flow(flow).await.unwrap();
    let (new, claim_ids, instance) = doomed(&fresh).await;
    let lanes = Lanes::new(new.queues, vec!["work".to_owned()]);
    let claim_id = claim_ids.take();
    let claim = fresh.store.claimer(instance, lanes).claim(claim_id, 1).await.unwrap();
    assert_eq!(claim.tasks[0].id.task_id, created["first"]);
    let ending = AttemptRecord {
        id: claim.tasks[0].id,
        retry_number: 0,
        claim_id,
        instance_id: instance,
        ran: None,
        result: Some(task_engine::Json::encode(&"one").unwrap()),
        error: None,
        next: NextState::End(Stopped),
        cancel_response: None,
    };
    fresh.store.record(&[ending], &[claim_id]).await.unwrap();
    assert!(fresh.details(created["second"]).await.row.is_blocked);
    let often = Duration::from_millis(100);
    let engine = start(engine(&fresh).heartbeat(often, Duration::from_secs(5)).poll(often));
    let second = fresh.until_status(created["second"], Stopped).await;
    assert_eq!(result(&second), json!({"first": "one"}));
    assert_eq!(fresh.until_ended(created["alert"]).await.row.status, Cancelled);
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn recovered_parent_lets_dependents_end(fresh: Fresh) {
    let created = tasks(&fresh).create_flow(with_every_condition(work("x"))).await.unwrap();
    let (new, claim_ids, instance) = doomed(&fresh).await;
    let lanes = Lanes::new(new.queues, vec!["work".to_owned()]);
    let claim = fresh.store.claimer(instance, lanes).claim(claim_ids.take(), 1).await.unwrap();
    let origin = Origin::of(created["first"], &claim.tasks[0].context);
    assert_eq!(origin.correlation_id, created.correlation_id);
    assert!(fresh.store.declare_lost(instance, true).await.unwrap());
    let often = Duration::from_millis(100);
    let engine = start(engine(&fresh).heartbeat(often, Duration::from_secs(5)).poll(often));
    let ended = ends(&fresh, &created).await;
    engine.stop().await;
    assert_eq!(error(&ended["first"]).exception, "InstanceLost");
    assert_eq!(result(&ended["failure"]), json!({"first": ["failed", "InstanceLost"]}));
    assert_eq!(ended["later"].row.status, Cancelled);
    assert_eq!(ended["end"].row.status, Stopped);
    fresh.assert_sound().await;
}

/// A second stop signal releases running tasks.
async fn released_parent_runs_again(fresh: Fresh) {
    let slow = async |_: Value, cx: Context<()>| {
        if cx.attempt() == 1 {
            std::future::pending::<()>().await;
        }
        Ok::<_, Failure>("slow")
    };
    let flow = Flow::new().add("slow", task("slow", nothing())).add("next", reads()).after("slow");
    let created = tasks(&fresh).create_flow(flow).await.unwrap();
    let first = start(engine(&fresh).handle_class("slow", once(), slow));
    fresh.until_status(created["slow"], TaskStatus::Running).await;
    first.stop.stop_now();
    first.ended().await.unwrap();
    assert!(fresh.details(created["next"]).await.row.is_blocked);
    let second = start(engine(&fresh).handle_class("slow", once(), slow));
    let next = fresh.until_status(created["next"], Stopped).await;
    assert_eq!(result(&next), json!({"slow": "slow"}));
    assert_eq!(next.executions.len(), 1);
    second.stop().await;
    fresh.assert_sound().await;
}

/// A durable task ends several attempts before it ends; limits apply once a task has started.
async fn durable_and_limited_tasks_take_part(fresh: Fresh) {
    let approve = async |_: Value, cx: Context<()>| {
        let by: String = cx.wait_for("approved", Duration::from_secs(3600)).await?;
        let child: Value = cx.call(Reads {}).await?;
        assert_eq!(child, json!({}));
        Ok::<_, Failure>(by)
    };
    let flow = Flow::new()
        .add("approve", task("approve", nothing()))
        .add("a", task("limited", nothing()))
        .after("approve")
        .add("b", task("limited", nothing()))
        .after("approve")
        .add("join", reads())
        .after(["a", "b"]);
    let created = tasks(&fresh).create_flow(flow).await.unwrap();
    let one_at_a_time = once().limit(LimitOptions::max(1));
    let limited = async |_: Value, cx: Context<()>| {
        let by: String = cx.result_of("approve").await?;
        Ok::<_, Failure>(by)
    };
    let engine = start(engine(&fresh).handle_class("approve", once(), approve).handle_class(
        "limited",
        one_at_a_time,
        limited,
    ));
    fresh.until_requeued(created["approve"]).await;
    assert!(fresh.details(created["a"]).await.row.is_blocked);
    assert!(!fresh.details(created["approve"]).await.row.is_blocked);
    tasks(&fresh).signal(created["approve"], "approved", &"ada").await.unwrap();
    let ended = ends(&fresh, &created).await;
    engine.stop().await;
    assert_eq!(result(&ended["join"]), json!({"a": "ada", "b": "ada"}));
    let (a, b) = (&ended["a"], &ended["b"]);
    assert!(started_after(a, b) || started_after(b, a), "one at a time: {a:#?} {b:#?}");
    fresh.assert_sound().await;
}
