//! A drain runs what an engine would run, in its order, and reports it.

use std::time::Duration;

use task_engine::core::claim::ClaimIds;
use task_engine::core::instance::NewInstance;
use task_engine::core::queue::{Lanes, QueuePause};
use task_engine::testing::Harness;
use task_engine::{CancelReport, Json, NewTask, Recovery, TaskStatus};
use task_engine_test_harness::TestServer;

use crate::tasks::{Again, Newsletter, SendMail, engine, harness, mail, panic_of};

fn readers(names: &[&str]) -> Newsletter {
    Newsletter { readers: names.iter().map(|name| (*name).to_owned()).collect() }
}

#[tokio::test]
async fn drain_runs_tasks_created_meanwhile() {
    let harness = harness().await;
    harness.tasks().create(readers(&["ada", "busy", "unknown"])).await.unwrap();
    harness.tasks().create(mail("later")).after(Duration::from_secs(60)).await.unwrap();
    let drained = harness.drain().await;
    let ran: Vec<_> = drained.iter().map(|one| (one.class.as_str(), one.status)).collect();
    let expected = [
        ("newsletter", TaskStatus::Stopped),
        ("send_mail", TaskStatus::Stopped),
        ("send_mail", TaskStatus::Waiting),
        ("send_mail", TaskStatus::Failed),
    ];
    assert_eq!(ran, expected, "{drained}");
    assert_eq!(drained.of::<SendMail>().len(), 3);
    assert_eq!(drained[0].result::<usize>(), Ok(3));
    assert!(harness.drain().await.is_empty(), "nothing else is due");
    let words = panic_of(async { drained.assert_all_done() }).await;
    assert!(words.contains("failed: Failure: unknown recipient"), "{words}");
    assert!(words.contains("to be retried after 600s"), "{words}");
}

#[tokio::test]
async fn drain_runs_highest_priority_first() {
    let harness = Harness::new(|tasks| engine(tasks).queues(["default", "mail"])).await;
    let client = harness.tasks();
    client.create(mail("last")).priority(-1).await.unwrap();
    client.create(mail("second")).await.unwrap();
    client.create(mail("first")).queue("mail").priority(9).await.unwrap();
    let drained = harness.drain().await;
    let order: Vec<_> = drained.iter().flat_map(|one| one.log()).collect();
    assert_eq!(order, ["to first", "to second", "to last"]);
}

#[tokio::test]
async fn drain_until_quiet_runs_retries() {
    let harness = harness().await;
    let client = harness.tasks();
    let before = harness.now().await;
    client.create(mail("busy")).await.unwrap();
    client.create(mail("later")).after(Duration::from_secs(86_400)).await.unwrap();
    let drained = harness.drain_until_quiet().await;
    drained.assert_all_done();
    let order: Vec<_> = drained.iter().map(|one| (one.log()[0], one.attempt)).collect();
    assert_eq!(order, [("to busy", 1), ("to busy", 2), ("to busy", 3), ("to later", 1)]);
    let passed = harness.now().await.duration_since(before).as_secs();
    assert!((86_400..86_460).contains(&passed), "{passed} s");
    assert_eq!(harness.store().verify().await.unwrap(), []);
}

#[tokio::test]
async fn passed_over_tasks_have_reasons() {
    let harness = harness().await;
    let client = harness.tasks();
    client.create(mail("ada")).queue("elsewhere").await.unwrap();
    let unknown = NewTask::new("unknown", Json::empty_object()).unwrap();
    client.create_many(&[unknown]).await.unwrap();
    let pause = QueuePause::new("default", None).unwrap();
    harness.store().pause_queue(&pause).await.unwrap();
    client.create(mail("paused")).await.unwrap();
    let drained = harness.drain().await;
    assert!(drained.is_empty());
    let why: Vec<_> = drained.passed_over.iter().map(|task| task.why.as_str()).collect();
    let expected = [
        r#"no worker of this engine serves queue "elsewhere""#,
        r#"class "unknown" has no handler in this engine"#,
        r#"queue "default" is paused"#,
    ];
    assert_eq!(why, expected);
    let words = panic_of(async { drained.assert_all_done() }).await;
    assert!(words.contains("was passed over: no worker"), "{words}");
}

#[tokio::test]
async fn endless_drain_panics() {
    let harness = harness().await.limit(20);
    harness.tasks().create(Again).await.unwrap();
    let words = panic_of(harness.drain()).await;
    assert!(words.contains("21 tasks have run, and there is no end to it"), "{words}");
    assert!(words.contains("(again)"), "{words}");
}

#[tokio::test]
async fn performed_task_can_be_cancelled() {
    let harness = Harness::new(|tasks| {
        // Without the time limit of its class.
        let options = task_engine::TaskOptions::default();
        tasks.engine(crate::tasks::App::default()).handle_class(
            "long",
            options,
            async |_: serde_json::Value, cx: task_engine::Context<crate::tasks::App>| {
                cx.state().begun.notify_one();
                cx.cancelled().await;
                Err::<(), task_engine::Failure>("asked to end".into())
            },
        )
    })
    .await;
    let long = NewTask::new("long", Json::empty_object()).unwrap();
    let id = harness.tasks().create_many(&[long]).await.unwrap()[0];
    let cancel = async {
        harness.state().begun.notified().await;
        harness.tasks().cancel(id).await.unwrap()
    };
    let (drained, report) = tokio::join!(harness.drain(), cancel);
    assert_eq!(report, CancelReport::Requested);
    assert_eq!(drained[0].status, TaskStatus::Cancelled);
    assert!(drained[0].error().message.contains("asked to end"), "{drained}");
}

#[tokio::test]
async fn moved_clock_expires_leases() {
    for recovery in [Recovery::Auto, Recovery::Manual] {
        let harness = Harness::new(|tasks| engine(tasks).recovery(recovery)).await;
        let store = harness.store();
        harness.tasks().create(mail("ada")).await.unwrap();
        // An engine that claims the task and sends no more heartbeats.
        let dead = NewInstance {
            name: "dead".into(),
            host: "elsewhere".into(),
            pid: 1,
            process: None,
            version: "1".into(),
            workers: 1,
            lease: Duration::from_secs(30),
            queues: vec!["default".into()],
            pools: Vec::new(),
            classes: Default::default(),
        };
        let dead = store.register(&dead).await.unwrap();
        let lanes = Lanes::new(vec!["default".into()], vec!["send_mail".into()]);
        let claim = store.claimer(dead, lanes).claim(ClaimIds::new(dead).take(), 1).await.unwrap();
        assert_eq!(claim.tasks.len(), 1);
        assert!(harness.drain().await.is_empty(), "it is held");
        harness.advance(Duration::from_secs(31)).await;
        let drained = harness.drain_until_quiet().await;
        let attempts: Vec<_> = drained.iter().map(|one| one.attempt).collect();
        match recovery {
            Recovery::Auto => assert_eq!(attempts, [2], "the second: the first was lost"),
            Recovery::Manual => assert!(attempts.is_empty(), "an operator has to decide"),
        }
    }
}

/// An effect in the file of the store, and the end of the task, in one commit.
#[tokio::test]
async fn task_completes_in_transaction() {
    use task_engine::sqlite::rusqlite::Connection;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    let app = Connection::open(&file).unwrap();
    app.execute_batch("CREATE TABLE effects (n)").unwrap();
    let harness = Harness::open(&file, |tasks| {
        tasks.engine(file.clone()).handle_blocking(
            |task: SendMail, cx: task_engine::Context<std::path::PathBuf>| {
                let mut connection = Connection::open(cx.state())?;
                let transaction = connection.transaction()?;
                transaction.execute("INSERT INTO effects VALUES (1)", [])?;
                cx.complete_in(&transaction, &task.words)?;
                if task.to != "forgets" {
                    transaction.commit()?;
                }
                Err::<u32, _>(task_engine::Failure::no_retry("after the commit"))
            },
        )
    })
    .await;
    let done = harness.perform(mail("ada")).await;
    assert_eq!(done.result::<u32>(), Ok(7), "{done}");
    let failed = harness.perform(mail("forgets")).await;
    assert_eq!(failed.error().message, "after the commit");
    let effects: i64 = app.query_row("SELECT count(*) FROM effects", [], |r| r.get(0)).unwrap();
    assert_eq!(effects, 1);
}

#[tokio::test]
async fn harness_runs_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    let store = task_engine::postgres::PgStore::connect(&url).await.unwrap();
    let harness = Harness::on(store, engine).await;
    harness.tasks().create(readers(&["ada", "unknown"])).await.unwrap();
    let drained = harness.drain().await;
    let ran: Vec<_> = drained.iter().map(|one| one.status).collect();
    assert_eq!(ran, [TaskStatus::Stopped, TaskStatus::Stopped, TaskStatus::Failed], "{drained}");
    assert_eq!(harness.perform(mail("ada")).await.result::<u32>(), Ok(8));
    harness.assert_created(&mail("unknown")).await;
    let words = panic_of(harness.advance(Duration::from_secs(1))).await;
    assert!(words.contains("cannot be moved; use Harness::new"), "{words}");
    assert_eq!(harness.store().verify().await.unwrap(), []);
}
