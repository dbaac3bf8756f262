//! Engines: which are alive, which tasks they hold, and which names are free.

use std::time::Duration;

use task_engine_core::instance::{ENDED_KEPT, InstanceState};
use task_engine_core::instance::{InstanceId, NewInstance};
use task_engine_core::process;
use task_engine_core::queue::Pool;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::{TaskId, TaskOptions, TaskStatus};
use task_engine_store::error::StoreError;
use task_engine_store::export::{ExportLine, ImportIds, ImportOutcome};

use crate::TestDatabase;
use crate::exports::{export, import, text};
use crate::fixture::{Fixture, LONG_LEASE, WORK, new_instance, new_task, with_expired_lease};
use crate::waiting::wait_for;

/// All fields of a registered engine can be read.
pub async fn registered_instance_is_listed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut new = NewInstance {
        name: "web-1 \"é\"".to_owned(),
        host: "h1".to_owned(),
        pid: i32::MAX,
        process: Some("boot-7:4242".to_owned()),
        version: "0.1.0-beta".to_owned(),
        workers: 12,
        lease: Duration::from_millis(30_500),
        queues: vec!["slow".into(), "default".into()],
        pools: vec![
            Pool::new(vec!["slow".into()], 2),
            Pool { lowest_priority: Some(-7), ..Pool::new(vec!["slow".into()], 10) },
        ],
        classes: std::collections::BTreeMap::new(),
    };
    let often =
        RetryRule::every(Duration::from_millis(1500), 4).jitter(0.25).cap(Duration::from_secs(77));
    let options = TaskOptions::default().retry(often).timeout(Duration::from_secs(9));
    new.classes.insert("often".into(), options);
    let options = TaskOptions::default().queue("slow").priority(-4).retry(RetryRule::never());
    new.classes.insert("never".into(), options);
    new.classes.insert("typed".into(), TaskOptions::default().schema(schema()));
    let id = fixture.store.register(&new).await.expect("register");

    let lives = Fixture::open(db).await.instances(Some(&new.name)).await;
    let [row] = &lives[..] else { panic!("one life, not {lives:?}") };
    assert_eq!(row.id, id);
    assert_eq!(row.name, new.name);
    assert_eq!((&row.host, row.pid), (&new.host, new.pid));
    assert_eq!(row.process, new.process);
    assert_eq!(row.version, new.version);
    assert_eq!(row.workers, new.workers);
    assert_eq!(row.lease, new.lease);
    assert_eq!(row.queues, new.queues);
    assert_eq!(row.pools, new.pools);
    assert_eq!(row.classes, new.classes);
    assert_eq!((row.stopped_at, row.lost_at, row.held), (None, None, 0));
    assert!(row.heartbeat_age < Duration::from_secs(10), "{row:?}");
    assert!(row.is_alive());
}

fn schema() -> serde_json::Value {
    serde_json::json!({
        "type": "object",
        "title": "Ünïcode \"quoted\"",
        "properties": {"width": {"type": "integer", "minimum": 0.5, "maximum": 1_000_000_000_000_i64}},
        "required": ["width"],
        "additionalProperties": false,
    })
}

/// The schemas of a class are stored as long as the engine has not ended. Its other options
/// stay: they are needed to recover its tasks, and to keep secrets.
pub async fn schemas_end_with_their_engine(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let typed = TaskOptions::default().schema(schema());
    let secret = TaskOptions::default().priority(3).secret(["card"]);
    let of = |name: &str| NewInstance {
        classes: [
            ("typed", &typed),
            ("both", &secret.clone().schema(schema())),
            ("plain", &secret),
        ]
        .map(|(name, options)| (name.to_owned(), options.clone()))
        .into(),
        ..new_instance(name)
    };
    let stopped = fixture.register(of("stopped")).await;
    let lost = fixture.register(with_expired_lease(of("lost"))).await;
    for name in ["stopped", "lost"] {
        let row = fixture.instances(Some(name)).await.remove(0);
        assert_eq!(row.classes, of(name).classes, "{name}");
    }
    stopped.unregister().await;
    assert!(fixture.declare_lost(lost.id).await);
    for name in ["stopped", "lost"] {
        let row = fixture.instances(Some(name)).await.remove(0);
        assert_eq!(row.classes["typed"], TaskOptions::default(), "{name}");
        assert_eq!((&row.classes["both"], &row.classes["plain"]), (&secret, &secret), "{name}");
    }
}

/// A process of this machine that no longer exists is reported at once, regardless of its
/// lease. A process that runs or was stopped is not.
pub async fn gone_process_is_reported_at_once(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mark = process::mark().expect("this system tells processes apart");
    let (same, started) = mark.rsplit_once('/').expect("a start time");
    let of = |name: &str, mark: String| NewInstance { process: Some(mark), ..new_instance(name) };
    fixture.register(of("here", mark.clone())).await;
    let gone = fixture.register(of("gone", format!("{same}/1{started}"))).await;
    fixture.register(of("elsewhere", format!("other/{same}/1{started}"))).await;
    for (name, state) in [
        ("here", InstanceState::Alive),
        ("gone", InstanceState::ProcessGone),
        ("elsewhere", InstanceState::Alive),
    ] {
        assert_eq!(fixture.instances(Some(name)).await[0].state(), state, "{name}");
    }
    gone.unregister().await;
    assert_eq!(fixture.instances(Some("gone")).await[0].state(), InstanceState::Stopped);
}

/// A name is free when its session has ended or was declared lost. An expired lease is
/// not enough.
pub async fn instance_name_is_unique_while_live(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let engine = fixture.engine("a").await;
    name_is_taken(&fixture, "a").await;
    fixture.engine("b").await;
    engine.unregister().await;

    let second = fixture.register(with_expired_lease(new_instance("a"))).await;
    assert_ne!(second.id, engine.id, "a new life");
    name_is_taken(&fixture, "a").await;
    assert!(fixture.store.declare_lost(second.id, false).await.expect("declare_lost"));
    let third = fixture.engine("a").await;
    let ids: Vec<_> = [engine.id, second.id].into();
    assert!(!ids.contains(&third.id), "a new life");
}

async fn name_is_taken(fixture: &Fixture, name: &str) {
    match fixture.store.register(&new_instance(name)).await {
        Err(StoreError::NameTaken(taken)) => assert_eq!(taken, name),
        other => panic!("{name} is taken, but: {other:?}"),
    }
}

/// A heartbeat renews the lease, and returns the engine's own claims.
pub async fn heartbeat_renews_lease(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(5).await;
    let mut engine = fixture.engine("a").await;
    let mut other = fixture.engine("b").await;
    assert_eq!(engine.heartbeat().await.claims, []);
    let first = engine.claim(2).await[0].claim_id;
    let foreign = other.claim_one().await.claim_id;
    let second = engine.claim(2).await[0].claim_id;
    let pulse = engine.heartbeat().await;
    assert!(pulse.alive);
    let mut claims = pulse.claims;
    claims.sort();
    assert_eq!(claims, [first, second]);
    assert_eq!(other.heartbeat().await.claims, [foreign]);

    let age = async || fixture.instances(Some("a")).await[0].heartbeat_age;
    let grown = async || (age().await > Duration::from_millis(50)).then_some(());
    wait_for("the heartbeat grows old", grown).await;
    let row = fixture.instances(Some("a")).await.remove(0);
    assert!(engine.heartbeat().await.alive);
    let after = fixture.instances(Some("a")).await.remove(0);
    assert!(after.heartbeat_at > row.heartbeat_at, "renewed");
    assert_eq!(after.started_at, row.started_at);
}

/// Other engines see an expired lease, and a heartbeat renews it. A lost session stays
/// lost.
pub async fn expired_lease_is_seen_and_renewed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut new = new_instance("late");
    new.lease = Duration::from_millis(300);
    let late = fixture.register(new).await;
    let witness = fixture.engine("witness").await;
    wait_for("the lease runs out", async || {
        let expired = witness.heartbeat().await.expired;
        (expired == [late.id]).then_some(())
    })
    .await;
    assert!(!fixture.instances(Some("late")).await[0].is_alive());
    wait_for("a heartbeat mends it", async || {
        // If the machine stalls for 300 ms, one heartbeat is not enough.
        assert!(late.heartbeat().await.alive, "it was not declared lost");
        witness.heartbeat().await.expired.is_empty().then_some(())
    })
    .await;

    assert!(fixture.declare_lost(late.id).await);
    let pulse = witness.heartbeat().await;
    assert_eq!((pulse.expired, pulse.orphaned), (vec![], vec![]));
    assert!(!late.heartbeat().await.alive);
}

/// A live engine is not declared lost. One with an expired lease or without a process is,
/// once.
pub async fn only_dead_instances_become_lost(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let declare = async |id, gone| {
        let lost = fixture.store.declare_lost(id, gone).await;
        lost.expect("declare_lost")
    };
    let alive = fixture.engine("alive").await;
    assert!(!declare(alive.id, false).await);
    assert!(alive.heartbeat().await.alive);
    let gone = fixture.engine("gone").await;
    assert!(declare(gone.id, true).await);
    assert!(!declare(gone.id, true).await, "once");
    let late = fixture.register(with_expired_lease(new_instance("late"))).await;
    assert!(declare(late.id, false).await);
    let stopped = fixture.engine("stopped").await;
    stopped.unregister().await;
    assert!(!declare(stopped.id, true).await, "it is over already");
    assert!(!declare(InstanceId(987_654), true).await, "unknown instance");

    for (name, stopped, lost) in [
        ("alive", false, false),
        ("gone", false, true),
        ("late", false, true),
        ("stopped", true, false),
    ] {
        let row = fixture.instances(Some(name)).await.remove(0);
        assert_eq!(row.stopped_at.is_some(), stopped, "{name}");
        assert_eq!(row.lost_at.is_some(), lost, "{name}");
    }
}

/// An engine whose session has ended learns it at its heartbeat, and claims nothing.
pub async fn lost_instance_claims_nothing(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(4).await;
    let mut lost = fixture.engine("lost").await;
    let mut stopped = fixture.engine("stopped").await;
    let mut late = fixture.register(with_expired_lease(new_instance("late"))).await;
    lost.claim_one().await;
    assert!(fixture.declare_lost(lost.id).await);
    stopped.unregister().await;
    stopped.unregister().await;
    for engine in [&mut lost, &mut stopped] {
        let claim = engine.try_claim(1).await;
        assert!(matches!(claim, Err(StoreError::InstanceOver)), "{claim:?}");
        assert!(!engine.heartbeat().await.alive);
        let claim = engine.try_claim(1).await;
        assert!(matches!(claim, Err(StoreError::InstanceOver)), "{claim:?}");
    }
    let unknown = fixture.store.heartbeat(InstanceId(987_654)).await;
    assert!(!unknown.expect("heartbeat").alive);
    assert_eq!(fixture.list(Some(TaskStatus::Waiting)).await.len(), 3);
    // Late is not lost: no other engine has reclaimed its tasks.
    assert_eq!(late.claim_one().await.task_id(), ids[1]);
}

/// The tasks that an engine holds are listed and counted.
pub async fn held_tasks_are_listed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(5).await;
    let mut engine = fixture.engine("a").await;
    let other = fixture.engine("b").await;
    let before = fixture.now().await;
    let holds = [engine.claim(2).await, engine.claim(3).await].concat();
    let after = fixture.now().await;
    assert_eq!(engine.record(&[holds[1].succeeds()]).await, []);
    let mut held = fixture.store.held_attempts(engine.id).await.expect("held");
    held.sort_by_key(|held| held.id);
    let expected: Vec<_> = [0, 2, 3, 4].map(|n: usize| holds[n].id()).into();
    let ids: Vec<_> = held.iter().map(|held| held.id).collect();
    assert_eq!(ids, expected);
    for held in held {
        assert_eq!(held.class, WORK);
        let a_bit = jiff::SignedDuration::from_millis(5);
        assert!(held.claimed_at >= before - a_bit && held.claimed_at <= after + a_bit);
    }
    assert_eq!(other.held().await, []);
    assert_eq!(fixture.instances(Some("a")).await[0].held, 4);
    assert_eq!(fixture.instances(Some("b")).await[0].held, 0);
}

/// Sessions are listed newest first. Of the ended ones without tasks, only the last of
/// each name is listed.
pub async fn instances_are_listed_newest_first(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut last = None;
    for _ in 0..3 {
        let engine = fixture.engine("often").await;
        engine.unregister().await;
        last = Some(engine.id);
    }
    fixture.create_work(1).await;
    let mut lost = fixture.engine("holder").await;
    lost.claim_one().await;
    assert!(fixture.declare_lost(lost.id).await);
    let forgotten = fixture.engine("holder").await;
    forgotten.unregister().await;
    let living = fixture.engine("holder").await;

    let ids = async |name| {
        let lives = fixture.instances(name).await;
        lives.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(Some("often")).await, [last.unwrap()]);
    assert_eq!(ids(Some("holder")).await, [living.id, lost.id]);
    assert_eq!(ids(Some("unknown")).await, []);
    assert_eq!(ids(None).await, [living.id, lost.id, last.unwrap()]);
    let lost = fixture.instances(Some("holder")).await.remove(1);
    assert_eq!((lost.held, lost.lease), (1, LONG_LEASE));
}

/// A heartbeat reports the classes of waiting tasks, so that an engine can log the
/// unserved ones.
pub async fn heartbeat_reports_waiting_classes(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    assert_eq!(engine.heartbeat().await.waiting_classes, [""; 0]);
    for class in ["unknown", WORK, "strange", "unknown"] {
        fixture.create(crate::fixture::new_task(class)).await;
    }
    let mut classes = engine.heartbeat().await.waiting_classes;
    classes.sort();
    assert_eq!(classes, ["strange", "unknown", WORK], "each once");
    engine.claim_one().await;
    let mut classes = engine.heartbeat().await.waiting_classes;
    classes.sort();
    assert_eq!(classes, ["strange", "unknown"]);
}

/// Every start may use a new name. Sessions that ended long ago are listed only on
/// request, and are removed, except for those that hold tasks, those in the history of a
/// task, and the last that declared secrets.
pub async fn old_instances_are_removed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(3).await;
    for name in ["named", "twice"] {
        let mut engine = fixture.engine(name).await;
        let held = engine.claim_one().await;
        engine.record(&[held.fails()]).await;
        engine.finish(held.claim_id).await;
        engine.unregister().await;
    }
    for name in ["twice", "gone"] {
        fixture.engine(name).await.unregister().await;
    }
    for name in ["secret-1", "secret-2"] {
        let mut new = new_instance(name);
        let options = TaskOptions::default().secret(["password"]);
        new.classes.insert("mail".to_owned(), options);
        fixture.register(new).await.unregister().await;
    }
    fixture.engine("holder").await.claim_one().await;
    let first_copy = again_as_of_long_ago(&fixture).await;

    let old = async || {
        let lives = fixture.instances(None).await.into_iter().map(|life| life.name);
        let mut old: Vec<_> = lives.filter(|name| name.starts_with("old ")).collect();
        old.sort();
        old
    };
    assert_eq!(old().await, ["old holder", "old secret-2"]);
    assert_eq!(fixture.instances(Some("old gone")).await.len(), 1, "asked for");
    let young = fixture.instances(None).await.len() - 2;
    let prune = async |limit| fixture.store.prune_instances(limit).await.expect("prune_instances");
    assert_eq!((prune(1).await, prune(10).await, prune(10).await), (1, 1, 0), "gone and secret-1");
    for (name, left) in [("gone", 0), ("secret-1", 0), ("secret-2", 1), ("named", 1), ("twice", 1)]
    {
        assert_eq!(fixture.instances(Some(&format!("old {name}"))).await.len(), left, "{name}");
    }
    assert_eq!(old().await, ["old holder", "old secret-2"]);
    let copies: Vec<_> = ids.iter().map(|id| TaskId(id.0 + first_copy)).collect();
    for (copy, name) in copies.iter().zip(["old named", "old twice"]) {
        let task = fixture.details(*copy).await;
        assert_eq!(task.executions[0].instance.as_deref(), Some(name), "history has the name");
    }

    let removed = fixture.store.prune(TaskStatus::Failed, Duration::ZERO, 10).await.expect("prune");
    assert_eq!(removed, 4, "the tasks and their copies");
    assert_eq!(prune(10).await + prune(10).await, 3, "named, and both lives of twice");
    assert_eq!(fixture.instances(None).await.len() - 2, young, "what is young stays");
}

/// If there are more tasks from before a life ended than are looked through, it
/// stays: one of them may name it.
pub async fn instances_with_history_stay(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut ids = fixture.create_all(&vec![new_task("other"); 10_000]).await;
    ids.extend(fixture.create_work(1).await);
    let mut named = fixture.engine("named").await;
    let held = named.claim_one().await;
    named.record(&[held.succeeds()]).await;
    named.finish(held.claim_id).await;
    named.unregister().await;
    fixture.store.cancel(&ids).await.expect("cancel");
    again_as_of_long_ago(&fixture).await;
    fixture.store.delete(&ids).await.expect("remove");
    let prune = async || fixture.store.prune_instances(10).await.expect("prune_instances");
    assert_eq!(prune().await, 0);
    let all = Duration::ZERO;
    fixture.store.prune(TaskStatus::Cancelled, all, 100).await.expect("prune");
    assert_eq!(prune().await, 0, "it is named by one of those that are looked through");
    fixture.store.prune(TaskStatus::Stopped, all, 10).await.expect("prune");
    assert_eq!(prune().await, 1);
}

/// A copy of all tasks and sessions with older times. The names of engines begin with
/// "old". Returns the shift of the task ids.
async fn again_as_of_long_ago(fixture: &Fixture) -> i64 {
    let ago = ENDED_KEPT + Duration::from_secs(3600);
    let mut lines = export(&*fixture.store, &[]).await;
    for line in &mut lines {
        match line {
            ExportLine::Instance(life) => {
                life.name.insert_str(0, "old ");
                life.started_at -= ago;
                life.heartbeat_at -= ago;
                life.stopped_at = Some(life.heartbeat_at);
            }
            ExportLine::Task(task) => task.created_at -= ago,
            _ => {}
        }
    }
    let imported = import(&*fixture.store, &text(&lines), ImportIds::New).await.expect("import");
    let ImportOutcome::Done { shift, .. } = imported else { panic!("{imported:?}") };
    shift.tasks
}
