//! Rates: no window has more starts than the rate allows; and keys that are closed for some
//! time.

use std::time::{Duration, Instant};

use task_engine_core::limit::{ClosedKey, Limit, LimitId, LimitKey, LimitOptions, Rate};
use task_engine_store::claim::ClaimRest;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, TestEngine, WORK};
use crate::limits::{by_customer, claim_some, counts, limit_work, of_customers, per_customer};
use crate::waiting::TIMEOUT;

const HOUR: Duration = Duration::from_secs(3600);
/// The clocks of the test and of the database may run at slightly different speeds, and a
/// store may round to the millisecond.
const CLOCK_ERROR: Duration = Duration::from_millis(3);

/// Claims as an engine does, until so many attempts have started. Returns when each started:
/// at once, or as late as it may. Attempts whose time to start is over are released.
async fn starts(engine: &mut TestEngine, count: usize, batch: usize) -> Vec<Instant> {
    let deadline = Instant::now() + TIMEOUT;
    let mut starts = Vec::new();
    while starts.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} have started", starts.len());
        let (holds, rest) = engine.claim_up_to(batch).await;
        let start_before = holds.first().and_then(|hold| hold.task.limited.as_ref()?.start_before);
        if let Some(before) = start_before.filter(|_| starts.len() % 2 == 0) {
            tokio::time::sleep_until((before - Duration::from_millis(3)).into()).await;
        }
        for hold in holds {
            let now = Instant::now();
            let limited = hold.task.limited.as_ref().expect("limits");
            let may_start = limited.start_before.is_some_and(|before| now < before);
            let record = if may_start { hold.succeeds() } else { hold.is_released() };
            starts.extend(may_start.then_some(now));
            assert_eq!(engine.record(&[record]).await, []);
        }
        match rest {
            ClaimRest::Nothing { next_in } => {
                tokio::time::sleep(next_in.unwrap_or(Duration::from_millis(1))).await;
            }
            ClaimRest::More => {}
            ClaimRest::Contended => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    starts
}

fn next_in(rest: ClaimRest) -> Duration {
    match rest {
        ClaimRest::Nothing { next_in: Some(next_in) } => next_in,
        other => panic!("only the time is missing, but the rest is {other:?}"),
    }
}

/// Claims until nothing else can start. Returns the time until the next start.
async fn claim_and_wait(engine: &mut TestEngine) -> (Vec<TestAttempt>, Duration) {
    let holds = claim_some(engine, 50).await;
    let (none, rest) = engine.claim_up_to(50).await;
    assert_eq!(none.len(), 0);
    (holds, next_in(rest))
}

/// In any window there are at most as many starts as the rate allows, by the clock of the
/// engine, and two engines share the rate.
pub async fn rate_holds_in_every_window(db: &dyn TestDatabase) {
    const MAX: usize = 3;
    let per = Duration::from_millis(1500);
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::rate(Rate::new(3, per))).await;
    fixture.create_work(100).await;
    let mut engines = Vec::new();
    for (n, batch) in [(0, 3), (1, 10)] {
        let handle = Fixture::open(db).await;
        let mut engine = handle.engine(&format!("engine-{n}")).await;
        engines.push(tokio::spawn(async move { starts(&mut engine, 4, batch).await }));
    }
    let mut all = Vec::new();
    for engine in engines {
        all.extend(engine.await.expect("starts"));
    }
    all.sort();
    for window in all.windows(MAX + 1) {
        let lasted = window[MAX] - window[0];
        assert!(lasted + CLOCK_ERROR >= per, "{} starts in {lasted:?}", MAX + 1);
    }
}

/// A claim takes as many as the rate allows at once, reports when the next can start, and
/// until when its attempts must have started.
pub async fn claim_reports_next_start(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let rate = Rate::new(2, HOUR);
    limit_work(&fixture, per_customer(LimitOptions::rate(rate))).await;
    fixture.create_all(&of_customers(&["a", "b"], 3)).await;
    let mut engine = fixture.engine("e").await;
    let called = Instant::now();
    let (holds, next_in) = claim_and_wait(&mut engine).await;
    assert_eq!(by_customer(&holds), counts(&[("a", 2), ("b", 2)]));
    for hold in &holds {
        let start_before = hold.task.limited.as_ref().expect("limits").start_before;
        let start_before = start_before.expect("a time to start");
        assert!(start_before >= called + rate.start_within());
        assert!(start_before <= Instant::now() + rate.start_within());
    }
    assert!(next_in <= HOUR + rate.start_within() && next_in > HOUR / 2, "{next_in:?}");
    // An end gives no start back.
    let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    assert_eq!(claim_and_wait(&mut engine).await.0.len(), 0);
}

/// Starts of an even rate have at least the same time between them.
pub async fn even_rate_spaces_starts(db: &dyn TestDatabase) {
    let rate = Rate::new(5, Duration::from_millis(1500)).even();
    let spacing = Duration::from_millis(300);
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::rate(rate)).await;
    fixture.create_work(30).await;
    let mut engine = fixture.engine("e").await;
    assert_eq!(claim_some(&mut engine, 10).await.len(), 1, "one at a time");
    let (none, rest) = engine.claim_up_to(10).await;
    assert_eq!(none.len(), 0);
    assert!(next_in(rest) <= spacing + rate.start_within(), "{rest:?}");
    let starts = starts(&mut engine, 3, 10).await;
    for pair in starts.windows(2) {
        let between = pair[1] - pair[0];
        // Claims are spaced; each start comes within its time after the claim.
        let least = spacing - rate.start_within();
        assert!(between + CLOCK_ERROR >= least, "{between:?} between two starts");
    }
}

/// A rate and a maximum apply together.
pub async fn rate_and_max_apply_together(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(2).and_rate(Rate::new(3, HOUR))).await;
    fixture.create_work(9).await;
    let mut engine = fixture.engine("e").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 2, "the maximum");
    let (_, rest) = engine.claim_up_to(10).await;
    assert_eq!(rest, ClaimRest::Nothing { next_in: None }, "not only the time is missing");
    let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    let (holds, _) = claim_and_wait(&mut engine).await;
    assert_eq!(holds.len(), 1, "the rate");
}

/// Several rates apply together: the one that is used up first decides.
pub async fn rates_apply_together(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::rate(Rate::new(3, HOUR)))).await;
    let all = Limit::of_class("all", WORK, LimitOptions::rate(Rate::new(5, HOUR)));
    fixture.store.set_limit(&all.expect("a limit")).await.expect("set_limit");
    fixture.create_all(&of_customers(&["a", "b", "c"], 9)).await;
    let mut engine = fixture.engine("e").await;
    let holds = claim_some(&mut engine, 4).await;
    assert_eq!(holds.len(), 4);
    let all = [holds, claim_and_wait(&mut engine).await.0].concat();
    assert_eq!(all.len(), 5);
    assert!(by_customer(&all).values().all(|count| *count <= 3), "{all:?}");
}

/// A changed rate counts starts from its change on; another change does not touch it.
pub async fn changed_rate_counts_again(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::rate(Rate::new(2, HOUR))).await;
    fixture.create_work(20).await;
    let mut engine = fixture.engine("e").await;
    assert_eq!(claim_and_wait(&mut engine).await.0.len(), 2);
    limit_work(&fixture, LimitOptions::max(50).and_rate(Rate::new(2, HOUR))).await;
    assert_eq!(claim_and_wait(&mut engine).await.0.len(), 0, "the same rate");
    limit_work(&fixture, LimitOptions::rate(Rate::new(3, HOUR))).await;
    assert_eq!(claim_and_wait(&mut engine).await.0.len(), 3);
    limit_work(&fixture, LimitOptions::max(50)).await;
    assert_eq!(engine.claim_all(50).await.len(), 15, "without a rate");
}

async fn close(fixture: &Fixture, key: &LimitKey, closed_for: Duration, reason: &str) {
    let closed =
        ClosedKey { limit: key.0, key: key.1.clone(), closed_for, reason: reason.to_owned() };
    fixture.store.close_limit_keys(&[closed]).await.expect("close_limit_keys");
}

/// A closed key starts nothing until it is opened. The longer time counts.
pub async fn closed_key_starts_nothing(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(2))).await;
    fixture.create_all(&of_customers(&["a", "b"], 2)).await;
    let mut engine = fixture.engine("e").await;
    let holds = claim_some(&mut engine, 2).await;
    let a = holds.iter().find(|hold| crate::limits::customer(hold) == "a").expect("a hold of a");
    let lane_key = &a.task.limited.as_ref().expect("limits").lane_key;
    let keys = lane_key.closed_by_task();
    close(&fixture, keys[0], HOUR, "429 Too Many Requests").await;
    close(&fixture, keys[0], Duration::from_millis(1), "shorter").await;
    let (holds, next_in) = claim_and_wait(&mut engine).await;
    assert_eq!(by_customer(&holds), counts(&[("b", 1)]));
    assert!(next_in <= HOUR && next_in > HOUR / 2, "{next_in:?}");
    let usage = fixture.store.limit_usage(Some(keys[0].0), 10).await.expect("usage");
    let closed = usage.keys.iter().find(|key| key.key == "a").and_then(|key| key.closed.clone());
    assert_eq!(closed.expect("closed").1, "429 Too Many Requests");
    let open = |name: &'static str, key: &'static str| fixture.store.open_limit_key(name, key);
    assert!(!open(WORK, "b").await.expect("open"));
    assert!(!open("unknown", "a").await.expect("open"));
    assert!(open(WORK, "a").await.expect("open"));
    assert!(!open(WORK, "a").await.expect("open"));
    assert_eq!(by_customer(&engine.claim_all(10).await), counts(&[("a", 1)]));
    // A limit that does not exist any more.
    close(&fixture, &LimitKey(LimitId(1_000_000), String::new()), HOUR, "late").await;
}

/// A closed key opens by itself.
pub async fn closed_key_opens_after_its_time(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::default())).await;
    fixture.create_all(&of_customers(&["a"], 2)).await;
    let mut engine = fixture.engine("e").await;
    let holds = claim_some(&mut engine, 1).await;
    let keys = holds[0].task.limited.as_ref().expect("limits").lane_key.clone();
    let (asked, time) = (Instant::now(), Duration::from_millis(100));
    close(&fixture, &keys.0[0], time, "busy").await;
    let mut started = Vec::new();
    while started.is_empty() {
        let (holds, rest) = engine.claim_up_to(10).await;
        if holds.is_empty() {
            tokio::time::sleep(next_in(rest)).await;
        }
        started = holds;
        assert!(asked.elapsed() < TIMEOUT, "never opened");
    }
    assert!(asked.elapsed() + CLOCK_ERROR >= time, "{:?}", asked.elapsed());
}
