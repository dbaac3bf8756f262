//! Which limits apply: declared by engines, set by operators, or named by tasks; and which
//! key a task has.

use std::time::Duration;

use task_engine_core::json::Json;
use task_engine_core::limit::{
    CONTEXT_NAME, DeclaredLimits, Limit, LimitChange, LimitCleared, LimitOptions, LimitRow,
};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::{OnConflict, Unique};
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, WORK, new_task, task_ids};
use crate::limits::{by_customer, counts, limit_work, of_customer, of_customers, per_customer};

const HOUR: Duration = Duration::from_secs(3600);

fn of_work(name: &str, options: LimitOptions) -> Limit {
    Limit::of_class(name, WORK, options).expect("a limit")
}

async fn declare(fixture: &Fixture, limits: &[Limit]) -> Vec<(String, LimitChange)> {
    let declared = DeclaredLimits { classes: vec![WORK.to_owned()], limits: limits.to_vec() };
    fixture.store.declare_limits(&declared).await.expect("declare_limits")
}

async fn rows(fixture: &Fixture) -> Vec<LimitRow> {
    fixture.store.limits().await.expect("limits")
}

async fn clear(fixture: &Fixture, name: &str) -> LimitCleared {
    fixture.store.clear_limit(name).await.expect("clear_limit")
}

/// A task that names limits with keys.
fn naming(named: &serde_json::Value) -> NewTask {
    let mut task = new_task(WORK);
    task.add_context(CONTEXT_NAME, named).expect("a context");
    task
}

fn outcome(name: &str, change: LimitChange) -> (String, LimitChange) {
    (name.to_owned(), change)
}

/// The last declaration decides: limits are added, changed, and removed if they are not
/// declared any more, for the classes of the engine.
pub async fn last_declaration_decides(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let (max, order) =
        (of_work(WORK, LimitOptions::max(2)), of_work("o", LimitOptions::in_order()));
    let queue = Limit::of_queue("queue", "mail", LimitOptions::max(9)).expect("a limit");
    let all = [max.clone(), order, queue];
    let added = declare(&fixture, &all).await;
    assert!(added.iter().all(|(_, change)| *change == LimitChange::Added), "{added:?}");
    let again = declare(&fixture, &all).await;
    assert!(again.iter().all(|(_, change)| *change == LimitChange::Unchanged), "{again:?}");

    let other = of_work(WORK, LimitOptions::max(3));
    let changed = declare(&fixture, std::slice::from_ref(&other)).await;
    let expected = [outcome(WORK, LimitChange::Changed), outcome("o", LimitChange::Removed)];
    assert_eq!(changed, expected);
    let found = rows(&fixture).await;
    let names: Vec<_> = found.iter().map(|row| row.limit.name.as_str()).collect();
    assert_eq!(names, ["queue", WORK], "by name; the queue is not a class of this engine");
    assert_eq!((&found[1].limit, found[1].set_by_operator), (&other, false));
    assert_eq!(found[1].declared.as_ref(), Some(&other.options));

    let of_others = DeclaredLimits { classes: vec!["other".to_owned()], limits: Vec::new() };
    assert_eq!(fixture.store.declare_limits(&of_others).await.expect("declare"), []);
    assert_eq!(rows(&fixture).await.len(), 2);
    assert_eq!(declare(&fixture, &[]).await, [outcome(WORK, LimitChange::Removed)]);
}

/// A declared limit applies to claims from its declaration on, and not after its removal.
pub async fn declared_limit_applies(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    declare(&fixture, &[of_work(WORK, LimitOptions::max(2))]).await;
    fixture.create_work(9).await;
    let mut engine = fixture.engine("a").await;
    assert_eq!(engine.claim_all(10).await.len(), 2);
    declare(&Fixture::open(db).await, &[of_work(WORK, LimitOptions::max(3))]).await;
    assert_eq!(engine.claim_all(10).await.len(), 1);
    declare(&fixture, &[]).await;
    assert_eq!(engine.claim_all(10).await.len(), 6);
}

/// What an operator sets applies until it is cleared, whatever engines declare.
pub async fn operator_overrides_declaration(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    declare(&fixture, &[of_work(WORK, LimitOptions::max(1))]).await;
    assert_eq!(clear(&fixture, WORK).await, LimitCleared::OnlyDeclared);
    assert_eq!(limit_work(&fixture, LimitOptions::max(3)).await, LimitChange::Changed);
    let set = of_work(WORK, LimitOptions::max(3));
    assert_eq!(fixture.store.set_limit(&set).await.expect("set"), LimitChange::Unchanged);
    let declared = declare(&fixture, &[of_work(WORK, LimitOptions::max(2))]).await;
    assert_eq!(declared, [outcome(WORK, LimitChange::Overridden)]);
    let row = rows(&fixture).await.remove(0);
    assert_eq!((row.limit.options.max, row.set_by_operator), (Some(3), true));
    assert_eq!(row.declared, Some(LimitOptions::max(2)));
    fixture.create_work(9).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 3);
    assert_eq!(clear(&fixture, WORK).await, LimitCleared::Declared);
    assert_eq!(engine.record(&[holds[0].succeeds()]).await, []);
    assert_eq!(engine.claim_all(10).await.len(), 0, "two run, and two are declared");

    // No longer declared, but set: it stays until it is cleared.
    limit_work(&fixture, LimitOptions::max(4)).await;
    assert_eq!(declare(&fixture, &[]).await, []);
    assert_eq!(rows(&fixture).await[0].declared, None);
    assert_eq!(engine.claim_all(10).await.len(), 2);
    assert_eq!(clear(&fixture, WORK).await, LimitCleared::Removed);
    assert_eq!(clear(&fixture, WORK).await, LimitCleared::NotFound);
    assert_eq!(rows(&fixture).await, []);
}

/// A limit keeps its target, and invalid limits and too many of a class are refused.
pub async fn wrong_limits_are_refused(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(1)).await;
    let other = Limit::of_queue(WORK, "mail", LimitOptions::max(1)).expect("a limit");
    let refused = fixture.store.set_limit(&other).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let mut invalid = of_work("invalid", LimitOptions::max(1));
    invalid.options.max = Some(0);
    let refused = fixture.store.set_limit(&invalid).await;
    assert!(matches!(refused, Err(StoreError::InvalidData(_))), "{refused:?}");
    for name in ["second", "third"] {
        let limit = of_work(name, LimitOptions::max(1));
        assert_eq!(fixture.store.set_limit(&limit).await.expect("set"), LimitChange::Added);
    }
    let refused = fixture.store.set_limit(&of_work("fourth", LimitOptions::max(1))).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(rows(&fixture).await.len(), 3);
}

/// An engine cannot declare more limits than are possible beside those that an operator has
/// set, and then declares none. It can replace one by another.
pub async fn too_many_declared_limits_are_refused(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let one = |name: &str| of_work(name, LimitOptions::max(1));
    fixture.store.set_limit(&one("of operator")).await.expect("set");
    declare(&fixture, &[one("a"), one("b")]).await;
    let limits = vec![one("a"), one("b"), one("c")];
    let declared = DeclaredLimits { classes: vec![WORK.to_owned()], limits };
    let refused = fixture.store.declare_limits(&declared).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let names = async || {
        let rows = rows(&fixture).await;
        rows.into_iter().map(|row| row.limit.name).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["a", "b", "of operator"]);
    declare(&fixture, &[one("a"), one("c")]).await;
    assert_eq!(names().await, ["a", "c", "of operator"]);
}

/// Tasks name limits with keys of their own, also across classes.
pub async fn named_limit_applies_to_naming_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let api = Limit::named("api", LimitOptions::max(1)).expect("a limit");
    assert_eq!(fixture.store.set_limit(&api).await.expect("set"), LimitChange::Added);
    let of = |key: &str| naming(&serde_json::json!({ "api": key }));
    let ids = fixture.create_all(&[of("x"), of("x"), of("y"), new_task(WORK)]).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim_all(10).await;
    let mut claimed = task_ids(&holds);
    claimed.sort();
    assert_eq!(claimed, [ids[0], ids[2], ids[3]], "two keys, and one without a limit");
    let is_limited =
        |id| holds.iter().any(|hold| hold.task_id() == id && hold.task.limited.is_some());
    assert_eq!((is_limited(ids[0]), is_limited(ids[3])), (true, false));
    let first = holds.iter().find(|hold| hold.task_id() == ids[0]).expect("an attempt");
    assert_eq!(engine.record(&[first.succeeds()]).await, []);
    assert_eq!(task_ids(&engine.claim_all(10).await), ids[1..2]);
}

/// A task overrides its key for a limit of its class.
pub async fn task_names_key_of_class_limit(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    let with_key = |customer: &str, key: &str| {
        let mut task = of_customer(customer);
        task.add_context(CONTEXT_NAME, &serde_json::json!({ WORK: key })).expect("a context");
        task
    };
    let tasks = [with_key("a", "one"), with_key("b", "one"), of_customer("a")];
    let ids = fixture.create_all(&tasks).await;
    let mut engine = fixture.engine("e").await;
    let mut claimed = task_ids(&engine.claim_all(10).await);
    claimed.sort();
    assert_eq!(claimed, [ids[0], ids[2]], "a and b share the key");
}

/// A task that names an unknown limit, or too many, is refused, with the others of its call.
pub async fn unknown_limit_is_refused(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for name in ["a", "b", "c", "d"] {
        let limit = Limit::named(name, LimitOptions::max(1)).expect("a limit");
        fixture.store.set_limit(&limit).await.expect("set");
    }
    let unknown = naming(&serde_json::json!({ "a": 1, "x \"y\"": 1 }));
    let four = naming(&serde_json::json!({ "a": 1, "b": 1, "c": 1, "d": 1 }));
    for (task, words) in [(unknown, "does not exist"), (four, "at most 3")] {
        match fixture.store.create(&[new_task(WORK), task]).await {
            Err(StoreError::InvalidData(why) | StoreError::Refused(why)) => {
                assert!(why.contains(words), "{why}");
            }
            other => panic!("{words}: {other:?}"),
        }
    }
    assert_eq!(fixture.count_of(WORK).await, 0);
    // Something else that an application keeps under this name is none of ours.
    fixture.create(naming(&serde_json::json!("none"))).await;
    assert_eq!(fixture.engine("e").await.claim_all(10).await.len(), 1);
}

/// A named limit that is removed and added again applies to the tasks that still wait.
pub async fn named_limit_applies_again(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let api = Limit::named("api", LimitOptions::max(1)).expect("a limit");
    fixture.store.set_limit(&api).await.expect("set");
    // So that tasks stay in their lanes while the named limit does not exist.
    limit_work(&fixture, per_customer(LimitOptions::max(2))).await;
    let task = |key: &str| {
        let mut task = of_customer("a");
        task.add_context(CONTEXT_NAME, &serde_json::json!({ "api": key })).expect("a context");
        task
    };
    fixture.create_all(&vec![task("x"); 6]).await;
    let mut engine = fixture.engine("e").await;
    let first = engine.claim_all(10).await;
    assert_eq!(first.len(), 1);
    assert_eq!(clear(&fixture, "api").await, LimitCleared::Removed);
    let second = engine.claim_all(10).await;
    assert_eq!(second.len(), 1);
    assert_eq!(fixture.store.set_limit(&api).await.expect("set"), LimitChange::Added);
    assert_eq!(engine.record(&[first[0].succeeds()]).await, []);
    assert_eq!(engine.claim_all(10).await.len(), 0, "one runs that names it");
    assert_eq!(engine.record(&[second[0].succeeds()]).await, []);
    assert_eq!(engine.claim_all(10).await.len(), 1);
}

/// Keys are texts, numbers, booleans, missing, long, or lists: equal values share a key.
pub async fn keys_are_values_of_any_kind(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    let long = "long ä \u{1F4A5} ".repeat(100);
    let kinds = [
        serde_json::json!({ "customer": 7 }),
        serde_json::json!({ "customer": true }),
        serde_json::json!({ "customer": null }),
        serde_json::json!({ "customer": long }),
        serde_json::json!({ "customer": [1, { "a": "b" }] }),
        serde_json::json!({ "customer": "a \"quoted\" \\ text\n" }),
        serde_json::json!({ "customer": "\u{1F4A5}".repeat(49) }),
        serde_json::json!({ "customer": 1.5 }),
    ];
    let task = |parameters: &serde_json::Value| {
        let parameters = Json::parse(parameters.to_string()).expect("JSON");
        NewTask::new(WORK, parameters).expect("a task")
    };
    let tasks: Vec<_> = kinds.iter().flat_map(|one| [task(one), task(one)]).collect();
    let ids = fixture.create_all(&tasks).await;
    let mut engine = fixture.engine("e").await;
    let mut claimed = task_ids(&engine.claim_all(50).await);
    claimed.sort();
    let first_of_each: Vec<TaskId> = ids.iter().copied().step_by(2).collect();
    assert_eq!(claimed, first_of_each);
    // A number and its text, and a missing value and an empty one, are the same key.
    let same = [
        serde_json::json!({ "customer": "7" }),
        serde_json::json!({ "customer": "" }),
        serde_json::json!({}),
    ];
    fixture.create_all(&same.iter().map(task).collect::<Vec<_>>()).await;
    assert_eq!(engine.claim_all(50).await.len(), 0);
    // Another long one is another key.
    let other = serde_json::json!({ "customer": format!("{long}!") });
    let id = fixture.create(task(&other)).await;
    let holds = engine.claim_all(50).await;
    assert_eq!(task_ids(&holds), [id]);
    let key = &holds[0].task.limited.as_ref().expect("limits").lane_key.0[0].1;
    assert!(key.starts_with("hash:") && key.len() < 200, "{key}");
}

/// Another key parameter applies to tasks that wait, and to attempts that run.
pub async fn changed_key_parameter_applies(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(1).key("region")).await;
    fixture.create_all(&of_customers(&["a", "b"], 2)).await;
    let mut engine = fixture.engine("e").await;
    assert_eq!(by_customer(&engine.claim_all(10).await), counts(&[("a", 1)]));
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    assert_eq!(by_customer(&engine.claim_all(10).await), counts(&[("b", 1)]));
    limit_work(&fixture, per_customer(LimitOptions::max(2))).await;
    assert_eq!(by_customer(&engine.claim_all(10).await), counts(&[("a", 1), ("b", 1)]));
}

/// A limit that is added while tasks wait in lanes applies to them.
pub async fn added_limit_applies_to_waiting_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    fixture.create_all(&of_customers(&["a", "b", "c"], 4)).await;
    let mut engine = fixture.engine("e").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 3, "all others were moved to their lanes");
    let all = of_work("all", LimitOptions::max(2));
    fixture.store.set_limit(&all).await.expect("set");
    let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    let holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 2);
    assert!(
        holds.iter().all(|hold| hold.task.limited.as_ref().expect("limits").lane_key.0.len() == 2)
    );
    clear(&fixture, "all").await;
    assert_eq!(engine.claim_all(10).await.len(), 1);
}

/// A unique task that waits in its lane is found, kept and replaced, with its new key.
pub async fn unique_limited_task_is_replaced(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    let unique = |customer: &str| {
        let unique = Unique::by("one").on_conflict(OnConflict::Replace);
        of_customer(customer).unique(unique).expect("a unique task")
    };
    let ids = fixture.create_all(&[of_customer("a"), unique("a")]).await;
    let mut engine = fixture.engine("e").await;
    assert_eq!(task_ids(&engine.claim_all(10).await), ids[..1]);
    assert_eq!(fixture.create(unique("b")).await, ids[1]);
    let holds = engine.claim_all(10).await;
    assert_eq!(task_ids(&holds), ids[1..]);
    assert_eq!(by_customer(&holds), counts(&[("b", 1)]));
    assert_eq!(fixture.create(unique("c").after(HOUR)).await, ids[1], "it runs, and is kept");
}
