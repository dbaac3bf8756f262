//! What a dead engine left.

use super::support::{Place, eventually};

#[test]
fn a_living_engine_is_left_alone_and_a_dead_one_recovered() {
    let place = Place::new();
    let settings = ["start", "--instance", "web-1", "--heartbeat", "100ms", "--dead-after", "60s"];
    let (engine, witness) = place.start_on_witness(60_000, &settings);
    let alive = place.run(&["recover", "web-1"]);
    assert_eq!(alive.code, Some(4));
    let id = engine.id();
    for words in [format!("process {id} on"), "last heard of".to_owned()] {
        assert!(alive.err.contains(&words), "{words}: {}", alive.err);
    }
    let unknown = place.run(&["recover", "web-2"]);
    assert_eq!(unknown.code, Some(3));
    assert!(unknown.err.contains("there are web-1"), "{}", unknown.err);

    engine.signal("KILL");
    engine.end();
    let refused = place.run(&settings);
    assert_eq!(refused.code, Some(4), "{}", refused.err);
    for words in ["left 1 running task:", "task 1, attempt 1 (WitnessTask)", "--recovery auto"] {
        assert!(refused.err.contains(words), "{words}: {}", refused.err);
    }
    // Its process is gone from this machine: nobody waits for its lease.
    let recovered = place.run(&["recover", "web-1"]);
    assert_eq!(recovered.code, Some(0), "{}", recovered.err);
    assert_eq!(
        recovered.out,
        "task 1, attempt 1 (WitnessTask) will be retried in 100 ms (retry 1)\n"
    );
    assert!(recovered.err.contains("Recovered 1 task of web-1"), "{}", recovered.err);
    assert_eq!(place.task("1")["executions"][0]["error"]["exception"], "InstanceLost");
    assert!(place.run(&["recover", "web-1"]).err.contains("Nothing to recover"));

    let again = place.start(&[&settings[..], &["--witness", "witness"]].concat());
    eventually("a second attempt", || witness.lines().len() == 2);
    assert!(witness.lines()[1].starts_with("begin 1 2 "), "{:?}", witness.lines());
    again.signal("KILL");
}
