//! Tasks that hurt their engine.

use std::time::Duration;

use task_engine::{TaskId, TaskStatus};

use crate::commands::{Action, TaskSpec};
use crate::harness::context::TestContext;
use crate::harness::machine::ControlGroup;
use crate::history::{History, exception_of};

/// How often a poison task is retried here.
const RETRIES: u32 = 2;

/// F2: the work is done, and its engine dies before it is recorded. The task runs again,
/// and both attempts are recorded.
pub fn dies_before_the_record(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a"]);
    let spec =
        TaskSpec { ms: 5, action: Action::AbortAfter, attempts: Some(1), ..TaskSpec::default() };
    ctx.create_many(3, &spec);
    let history = ctx.settle_and_check();
    let lost = history.count("InstanceLost");
    assert!(lost >= 3, "each of them killed its engine once: {lost}");
    assert!(history.tasks.values().all(|task| task.status == TaskStatus::Stopped));
    ctx.note(format!("{} crashes", ctx.engines.crashes().len()));
}

/// F28: tasks that end the process of their engine, each in its own way.
pub fn kills_its_engine(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a", "b"]);
    let actions = [Action::Abort, Action::Exit, Action::OverflowStack];
    let bad: Vec<_> = actions
        .map(|action| TaskSpec::action(action).task_with_retries(RETRIES))
        .into_iter()
        .collect();
    let bad = ctx.create(&bad);
    // Other tasks end in the meantime.
    let good = ctx.create_many(100, &TaskSpec::work(20));
    let history = ctx.settle_and_check();
    verdict(ctx, &history, &bad, &good);
}

/// F27: a task uses all memory of a control group; the kernel kills the engine.
pub fn eats_all_memory(ctx: &mut TestContext) {
    ctx.use_default_store();
    let group = ControlGroup::new("memory");
    group.limit_memory(100 << 20);
    let mut small = ctx.options("small");
    small.wrapper = group.wrapper();
    ctx.engines.start(small);
    let bad = ctx.create(&[TaskSpec::action(Action::ExhaustMemory).task_with_retries(RETRIES)]);
    let good = ctx.create_many(50, &TaskSpec::work(20));
    let history = ctx.settle_and_check();
    verdict(ctx, &history, &bad, &good);
    ctx.engines.forget("small");
}

/// The task has failed, with evidence, after as many crashes as its rule allows. Other
/// tasks of the same engine have succeeded.
fn verdict(ctx: &mut TestContext, history: &History, bad: &[TaskId], good: &[TaskId]) {
    for id in bad {
        let task = &history.tasks[&id.0];
        assert_eq!(task.status, TaskStatus::Failed, "{task:?}");
        let last = task.executions.last().expect("an attempt");
        assert_eq!(exception_of(last), "InstanceLost");
        let message = last.error.as_ref().map_or("", |error| error.as_str());
        assert!(message.contains("process"), "it says which process: {message}");
        assert_eq!(task.executions.len(), RETRIES as usize + 1);
    }
    for id in good {
        assert_eq!(history.tasks[&id.0].status, TaskStatus::Stopped);
    }
    let shared = good.iter().filter(|id| history.tasks[&id.0].executions.len() > 1).count();
    ctx.note(format!(
        "{} crashes; {} poison tasks failed after {} tries each; {shared} of {} others had to be tried again",
        ctx.engines.crashes().len(),
        bad.len(),
        RETRIES + 1,
        good.len()
    ));
}

/// F29: very many panics, also in destructors.
pub fn panics(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a"]);
    let count = if ctx.soak { 5000 } else { 300 };
    let panics = TaskSpec::action(Action::Panic).task_with_retries(1);
    let twice = TaskSpec::action(Action::PanicTwice).task_with_retries(1);
    ctx.create(&vec![panics; count]);
    ctx.create(&vec![twice; count / 3]);
    let good = ctx.create_many(100, &TaskSpec::work(5));
    let history = ctx.settle_and_check();
    assert!(ctx.engines.crashes().is_empty(), "the engine lives: {:?}", ctx.engines.crashes());
    assert_eq!(history.count("Panic"), (count + count / 3) * 2);
    assert!(good.iter().all(|id| history.tasks[&id.0].status == TaskStatus::Stopped));
    ctx.note(format!("{} panics, no crash", history.count("Panic")));
}

/// F30: more tasks that block their threads, sleeping and busy, than there are cores. The
/// engine is not declared lost, and another queue continues.
pub fn blocks_every_thread(ctx: &mut TestContext) {
    ctx.use_default_store();
    let mut options = ctx.options("a");
    options.config.workers = 8;
    ctx.engines.start(options);
    ctx.wait_alive(&["a"]);
    let blocks = TaskSpec { ms: 4000, action: Action::Block, ..TaskSpec::default() };
    let spins = TaskSpec { ms: 4000, action: Action::Spin, ..TaskSpec::default() };
    ctx.create_many(2, &blocks);
    ctx.create_many(2, &spins);
    ctx.wait_until("threads are blocked", || ctx.started() >= 2);
    let store = ctx.store();
    let mut oldest = Duration::ZERO;
    ctx.wait_until("they end", || {
        let rows = ctx.block_on(store.instances(Some("a"))).expect("a list");
        oldest = oldest.max(rows.iter().map(|row| row.heartbeat_age).max().unwrap_or_default());
        assert!(rows.iter().any(|row| row.is_alive()), "given up: {rows:?}");
        ctx.finished() == 4
    });
    ctx.note(format!("the oldest heartbeat seen was {} ms old", oldest.as_millis()));
    let history = ctx.settle_and_check();
    assert_eq!(history.count("InstanceLost"), 0, "no engine was declared lost");
}

/// F34: very many tasks fail together; their retries are spread by the rule.
pub fn retry_storm(ctx: &mut TestContext) {
    use task_engine::RetryOverride;
    ctx.use_default_store();
    let count = if ctx.soak { 100_000 } else { 3000 };
    let rule = RetryOverride::default().maximum(1).first_delay(Duration::from_secs(20)).jitter(1.0);
    let spec = TaskSpec { ms: 0, action: Action::Fail, attempts: Some(1), ..TaskSpec::default() };
    for _ in 0..count / 1000 {
        ctx.create(&vec![spec.task().retry(rule); 1000]);
    }
    let mut options = ctx.options("a");
    options.config.workers = 50;
    options.config.lease_ms = 10_000;
    ctx.engines.start(options);
    let window = ctx.monitor_usage();
    let history = ctx.settle_and_check();
    let used = window.close();
    // The delay of each retry, in twenty equal parts of the longest delay.
    let mut bins = [0_usize; 20];
    for (_, execution) in history.executions() {
        if let Some(retry_at) = execution.retry_at {
            let wait = retry_at.duration_since(execution.stopped_at).as_secs_f64();
            bins[((wait / 20.0 * 20.0) as usize).min(19)] += 1;
        }
    }
    let (most, mean) = (bins.iter().max().copied().unwrap_or(0), count / 20);
    assert!(most <= mean * 3, "they come back together: {bins:?}");
    ctx.note(format!(
        "{count} retries spread over 20 s, at the most {:.1} times the mean in one; {used}",
        most as f64 / mean as f64
    ));
}
