//! Engines that die, or seem to.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::arena::Arena;
use crate::orders::Duty;

/// F1: engines and producers are killed at random, again and again.
pub fn kill_storm(arena: &mut Arena) {
    arena.on_usual_store();
    let names = ["a", "b", "c"];
    arena.start(&names);
    let count = if arena.soak { 3000 } else { 1000 };
    arena.produce_unique(count / 5, 5, Duty::work(5));
    arena.produce(count, 20, 20, Duty::work(5));
    arena.until("work has begun", || arena.done() > 20);
    let (mut killed, mut producers) = (0, 0);
    while arena.done() < count * 4 / 5 {
        arena.endure_some(50..400);
        if arena.chance.u8(..6) == 0 {
            let rest = count.saturating_sub(arena.confirmed());
            arena.kill_producer();
            arena.produce(rest, 20, 20, Duty::work(5));
            producers += 1;
        }
        let victim = *arena.chance.choice(&names).expect("three names");
        killed += u32::from(arena.fleet.kill(victim));
        if killed == 3 {
            arena.remember();
        }
    }
    arena.note(format!("{killed} engines and {producers} producers killed"));
    arena.account();
    assert!(killed > 0, "nobody was killed");
}

/// F4: an engine stops for three leases, and then goes on as if nothing were.
pub fn zombie(arena: &mut Arena) {
    arena.on_usual_store();
    let mut first = arena.plan("first");
    first.supervised = false;
    arena.fleet.start(first);
    // They end while the engine is stopped, and so return late.
    arena.create_many(3, &Duty::work(1000));
    arena.until("tasks run", || arena.begun() == 3);
    assert!(arena.fleet.signal("first", Signal::STOP));
    arena.start(&["second"]);
    arena.create_many(20, &Duty::work(5));
    arena.until("others have done all of it", || arena.done() == 23);
    let log_before = arena.fleet.logged("first").lines().count();
    arena.remember();
    arena.fleet.signal("first", Signal::CONT);
    let noticed = arena.until("the zombie knows", || {
        arena
            .fleet
            .logged("first")
            .lines()
            .skip(log_before)
            .any(|line| line.contains("declared lost"))
    });
    arena.note(format!("the zombie knew after {:.1} s", noticed.as_secs_f64()));
    assert!(noticed < Duration::from_secs(10), "{noticed:?}");
    arena.until_alive(&["first", "second"]);
    arena.create_many(20, &Duty::work(5));
    let history = arena.account();
    assert_eq!(history.count("InstanceLost"), 3);
    assert!(history.late() > 0, "what came late is kept");
}
