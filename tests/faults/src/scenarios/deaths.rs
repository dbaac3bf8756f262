//! Engines that die, or seem to.

use std::time::Duration;

use rustix::process::Signal;

use crate::commands::TaskSpec;
use crate::harness::context::TestContext;

/// F1: engines and producers are killed at random, again and again.
pub fn kill_storm(ctx: &mut TestContext) {
    ctx.use_default_store();
    let names = ["a", "b", "c"];
    ctx.start(&names);
    let count = if ctx.soak { 3000 } else { 1000 };
    ctx.produce_unique(count / 5, 5, TaskSpec::work(5));
    ctx.produce(count, 20, 20, TaskSpec::work(5));
    ctx.wait_until("work has begun", || ctx.finished() > 20);
    let (mut killed, mut producers) = (0, 0);
    while ctx.finished() < count * 4 / 5 {
        ctx.sleep_random(50..400);
        if ctx.rng.u8(..6) == 0 {
            let rest = count.saturating_sub(ctx.confirmed());
            ctx.kill_producer();
            ctx.produce(rest, 20, 20, TaskSpec::work(5));
            producers += 1;
        }
        let victim = *ctx.rng.choice(&names).expect("three names");
        killed += u32::from(ctx.engines.kill(victim));
        if killed == 3 {
            ctx.snapshot();
        }
    }
    ctx.note(format!("{killed} engines and {producers} producers killed"));
    ctx.settle_and_check();
    assert!(killed > 0, "no process was killed");
}

/// F4: an engine is stopped for three leases, and then continues.
pub fn zombie(ctx: &mut TestContext) {
    ctx.use_default_store();
    let mut first = ctx.options("first");
    first.supervised = false;
    ctx.engines.start(first);
    // They end while the engine is stopped, and so return late.
    ctx.create_many(3, &TaskSpec::work(1000));
    ctx.wait_until("tasks run", || ctx.started() == 3);
    assert!(ctx.engines.signal("first", Signal::STOP));
    ctx.start(&["second"]);
    ctx.create_many(20, &TaskSpec::work(5));
    ctx.wait_until("others have done all of it", || ctx.finished() == 23);
    let log_before = ctx.engines.logged("first").lines().count();
    ctx.snapshot();
    ctx.engines.signal("first", Signal::CONT);
    let noticed = ctx.wait_until("the zombie knows", || {
        ctx.engines
            .logged("first")
            .lines()
            .skip(log_before)
            .any(|line| line.contains("declared lost"))
    });
    ctx.note(format!("the zombie knew after {:.1} s", noticed.as_secs_f64()));
    assert!(noticed < Duration::from_secs(10), "{noticed:?}");
    ctx.wait_alive(&["first", "second"]);
    ctx.create_many(20, &TaskSpec::work(5));
    let history = ctx.settle_and_check();
    assert_eq!(history.count("InstanceLost"), 3);
    assert!(history.late() > 0, "what came late is kept");
}
