//! Recovery of the tasks of dead engines.

use std::fs;

use task_engine_test_harness::{TestServer, connect};

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{WITNESS_OPTIONS, wait_until};

#[test]
fn only_dead_engine_is_recovered() {
    let sandbox = sandbox();
    let settings = ["start", "--instance", "web-1", "--heartbeat", "100ms", "--dead-after", "60s"];
    let (engine, witness) = sandbox.start_on_witness(60_000, &settings);
    let alive = sandbox.run(&["recover", "web-1"]);
    assert_eq!(alive.code, Some(4));
    let id = engine.id();
    for words in [format!("process {id} on"), "last heartbeat".to_owned()] {
        assert!(alive.err.contains(&words), "{words}: {}", alive.err);
    }
    let unknown = sandbox.run(&["recover", "web-2"]);
    assert_eq!(unknown.code, Some(3));
    assert!(unknown.err.contains("known engines: web-1"), "{}", unknown.err);

    engine.signal("KILL");
    engine.end();
    let refused = sandbox.run(&[&settings[..], &["--recovery", "manual"]].concat());
    assert_eq!(refused.code, Some(4), "{}", refused.err);
    for words in
        ["left 1 running task:", "task 1, attempt 1 (WitnessTask)", "without --recovery manual"]
    {
        assert!(refused.err.contains(words), "{words}: {}", refused.err);
    }
    // Its process is gone from this machine: its lease need not run out.
    let instances = sandbox.ok(&["instances"]);
    assert!(instances.contains("process gone"), "{instances}");
    let shown = sandbox.ok(&["show", "1"]);
    assert!(shown.contains("its engine is dead: its process has ended"), "{shown}");
    assert_eq!(sandbox.task("1")["engine_state"], "process_gone");
    let dead = sandbox.run(&["recover"]);
    assert_eq!(dead.code, Some(0), "{dead:?}");
    assert!(dead.out.contains("task 1, attempt 1 (WitnessTask)"), "{}", dead.out);
    assert!(dead.err.contains("recover web-1"), "{}", dead.err);
    let recovered = sandbox.run(&["recover", "web-1"]);
    assert_eq!(recovered.code, Some(0), "{}", recovered.err);
    assert_eq!(
        recovered.out,
        "task 1, attempt 1 (WitnessTask) will be retried in 100 ms (retry 1)\n"
    );
    assert!(recovered.err.contains("Recovered 1 task of web-1"), "{}", recovered.err);
    assert_eq!(sandbox.task("1")["executions"][0]["error"]["exception"], "InstanceLost");
    assert!(sandbox.run(&["recover", "web-1"]).err.contains("Nothing to recover"));

    let again = sandbox.start(&[&settings[..], &WITNESS_OPTIONS].concat());
    wait_until("a second attempt", || witness.lines().len() == 2);
    assert!(witness.lines()[1].starts_with("begin 1 2"), "{:?}", witness.lines());
    again.signal("KILL");
}

#[test]
fn restart_recovers_by_default() {
    let sandbox = sandbox();
    let (engine, witness) = sandbox.start_on_witness(60_000, &["start"]);
    engine.signal("KILL");
    engine.end();
    let again = sandbox.start(&["start", "--config", "witness.toml"]);
    wait_until("a second attempt", || witness.lines().len() == 2);
    assert!(witness.lines()[1].starts_with("begin 1 2"), "{:?}", witness.lines());
    let log = again.err();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim();
    for words in [
        format!("recovered 1 task of dead engine {host} (process"),
        format!("task 1, attempt 1 (WitnessTask), left by engine {host}, will be retried"),
    ] {
        assert!(log.contains(&words), "{words}: {log}");
    }
    // A second replica with the same settings starts, too.
    let second = sandbox.start(&["start"]);
    wait_until("both are alive", || {
        let instances = sandbox.ok(&["instances"]);
        instances.contains(&format!("{host}-2")) && instances.matches(" alive ").count() == 2
    });
    again.signal("KILL");
    second.signal("KILL");
}

/// A lock on a table keeps tasks from being recovered: that is a failure, which
/// names the session that holds the lock.
#[tokio::test(flavor = "multi_thread")]
async fn recover_fails_under_table_lock() {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    let (engine, _) = sandbox.start_on_witness(60_000, &["start", "--instance", "w9"]);
    let second = sandbox.ok(&["create", "WaitingTask", "--after", "1h"]);
    engine.signal("KILL");
    engine.end();
    let client = connect(&format!("{url}?application_name=forgetful")).await;
    let lock = "BEGIN; LOCK TABLE task_engine.waiting_tasks IN SHARE ROW EXCLUSIVE MODE";
    client.batch_execute(lock).await.unwrap();
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let blocker = format!("process {pid} (postgres, forgetful), idle in transaction");
    for _ in 0..2 {
        let locked = sandbox.run(&["recover", "w9"]);
        assert_eq!(locked.code, Some(1), "{locked:?}");
        for words in ["0 tasks recovered, 1 not: ", &blocker, "ShareRowExclusiveLock"] {
            assert!(locked.err.contains(words), "{words}: {}", locked.err);
        }
    }
    let why = sandbox.ok(&["why", "1"]);
    assert!(why.contains(&blocker), "{why}");
    // A change of the queue waits for the lock, and then names its holder.
    let retried = sandbox.run(&["retry", second.trim(), "--yes"]);
    assert_eq!(retried.code, Some(1), "{retried:?}");
    assert!(retried.err.contains(&blocker), "{}", retried.err);
    client.batch_execute("COMMIT").await.unwrap();
    let recovered = sandbox.run(&["recover", "w9"]);
    assert_eq!(recovered.code, Some(0), "{recovered:?}");
    assert!(recovered.err.contains("Recovered 1 task of w9"), "{}", recovered.err);
}
