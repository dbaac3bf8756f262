//! The counters of engines are summed, each once, and kept as long as charts need them.

use std::time::Duration;

use task_engine_core::instance::InstanceId;
use task_engine_store::contract::Store;
use task_engine_store::rollup::{
    BUCKETS, ClassMinute, KEPT, RollupCounts, RollupQuery, RollupRow, TimeHistogram,
};

use crate::TestDatabase;
use crate::fixture::Fixture;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// The minute that it is by the store's clock.
async fn this_minute(store: &dyn Store) -> i64 {
    let (_, now) = store.schedule("unknown").await.expect("schedule");
    now.as_second().div_euclid(60)
}

/// This many of each, each in its own bucket.
fn counts(ok: u64, failed: u64, other: u64) -> RollupCounts {
    let (mut run, mut wait) = (TimeHistogram::default(), TimeHistogram::default());
    (run.counts[0], run.counts[BUCKETS - 1]) = (ok, failed + other);
    wait.counts[3] = ok + failed + other;
    (run.max_us, wait.max_us) = (100_000_000_000 + failed, 9_000 + ok);
    RollupCounts { ok, failed, other, run_us: 1_500_000 * ok, run, wait }
}

fn row(minute: i64, class: &str, counts: RollupCounts) -> ClassMinute {
    ClassMinute { minute, generation: 0, class: class.to_owned(), counts }
}

async fn send(store: &dyn Store, instance: i64, rows: &[ClassMinute]) {
    store.write_rollups(InstanceId(instance), rows).await.expect("write");
}

async fn rollups(store: &dyn Store, over: Duration, step: Duration) -> Vec<RollupRow> {
    store.rollups(RollupQuery { over, step }).await.expect("rollups")
}

/// The counters of each class, by the minute at which a step begins.
fn short(rows: &[RollupRow]) -> Vec<(i64, &str, u64, u64, u64)> {
    let short = |row: &RollupRow| (row.at.as_second() / 60, row.ok, row.failed, row.other);
    let all = rows.iter().map(|row| (short(row), row.class.as_str()));
    all.map(|((minute, ok, failed, other), class)| (minute, class, ok, failed, other)).collect()
}

/// The rollups of all engines are summed by class and step.
pub async fn rollups_are_summed_by_class(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    send(store, 1, &[]).await;
    assert_eq!(rollups(store, HOUR, MINUTE).await, []);
    // Steps begin at whole multiples: this is the last full step of ten minutes.
    let ten = this_minute(store).await / 10 * 10 - 10;
    let odd = "'; DROP \"é\" $1 ?1";
    send(
        store,
        1,
        &[
            row(ten, "a", counts(3, 2, 1)),
            row(ten, odd, counts(1, 0, 0)),
            row(ten + 1, "a", counts(5, 0, 0)),
            row(ten + 9, "", counts(0, 0, 7)),
        ],
    )
    .await;
    send(store, 2, &[row(ten, "a", counts(10, 20, 30)), row(ten + 10, "a", counts(0, 1, 0))]).await;
    let other = Fixture::open(db).await;
    let rows = rollups(&*other.store, HOUR, MINUTE).await;
    assert_eq!(
        short(&rows),
        [
            (ten, odd, 1, 0, 0),
            (ten, "a", 13, 22, 31),
            (ten + 1, "a", 5, 0, 0),
            (ten + 9, "", 0, 0, 7),
            (ten + 10, "a", 0, 1, 0),
        ]
    );
    let sum = &rows[1];
    assert!((sum.run_secs_sum - 1.5 * 13.0).abs() < 1e-9, "{sum:?}");
    let (run, wait) = (&sum.run, &sum.wait);
    assert_eq!((run.counts[0], run.counts[BUCKETS - 1], wait.counts[3]), (13, 53, 66));
    assert_eq!(run.total() + wait.total(), 132, "in no other bucket");
    assert_eq!((run.max_us, wait.max_us), (100_000_000_020, 9_010), "the longest of both");

    let rows = rollups(store, HOUR, 10 * MINUTE).await;
    assert_eq!(
        short(&rows),
        [(ten, "", 0, 0, 7), (ten, odd, 1, 0, 0), (ten, "a", 18, 22, 31), (ten + 10, "a", 0, 1, 0),]
    );
}

/// A repeated row counts once. A newer row replaces an older one, a late row does not. A
/// minute that repeats, because the clock was set back, is added.
pub async fn repeated_rollups_count_once(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    let minute = this_minute(store).await - 5;
    let seen = async || {
        let rows = rollups(store, HOUR, MINUTE).await;
        let [row] = &rows[..] else { panic!("{rows:?}") };
        (row.ok, row.failed, row.run.counts[0], row.wait.counts[3])
    };
    let (first, second) = (row(minute, "a", counts(3, 2, 0)), row(minute, "a", counts(4, 2, 0)));
    send(store, 1, std::slice::from_ref(&first)).await;
    send(store, 1, std::slice::from_ref(&first)).await;
    assert_eq!(seen().await, (3, 2, 3, 5));
    send(store, 1, std::slice::from_ref(&second)).await;
    send(store, 1, std::slice::from_ref(&second)).await;
    assert_eq!(seen().await, (4, 2, 4, 6));
    send(store, 1, &[first]).await;
    assert_eq!(seen().await, (4, 2, 4, 6), "the late one changes nothing");
    let again = ClassMinute { generation: 1, ..row(minute, "a", counts(1, 0, 0)) };
    send(store, 1, &[again.clone(), second]).await;
    send(store, 1, &[again]).await;
    assert_eq!(seen().await, (5, 2, 5, 7));
}

/// Only the requested time is read, from a whole minute on, for all lengths of steps.
/// Minutes in the future are not read; there may be some if the clock was set back.
pub async fn rollups_cover_requested_time(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    let now = this_minute(store).await;
    let minutes = [now - 24 * 60, now - 62, now - 30, now + 60];
    for minute in minutes {
        send(store, 1, &[row(minute, "a", counts(1, 0, 0))]).await;
    }
    let found = async |over, step| {
        let rows = rollups(store, over, step).await;
        assert!(rows.is_sorted_by_key(|row| row.at));
        rows.iter().map(|row| row.ok).sum::<u64>()
    };
    assert_eq!(found(10 * MINUTE, MINUTE).await, 0);
    assert_eq!(found(HOUR, MINUTE).await, 1);
    assert_eq!(found(HOUR, HOUR).await, 1, "an hour is not two");
    assert_eq!(found(2 * HOUR, MINUTE).await, 2);
    assert_eq!(found(KEPT, 15 * MINUTE).await, 3);
    assert_eq!(found(Duration::MAX, Duration::ZERO).await, 3);
}

/// Old rollups are removed, in bounded steps.
pub async fn old_rollups_are_removed_in_steps(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    let now = this_minute(store).await;
    let old = now - i64::try_from(KEPT.as_secs() / 60).expect("minutes");
    let rows: Vec<_> = (1..=25).map(|n| row(old - n, "a", counts(1, 0, 0))).collect();
    send(store, 1, &rows).await;
    let kept = [row(old + 5, "a", counts(1, 0, 0)), row(now, "a", counts(1, 0, 0))];
    send(store, 1, &kept).await;
    let prune = async |limit| store.prune_rollups(limit).await.expect("prune_rollups");
    assert_eq!((prune(10).await, prune(10).await, prune(10).await), (10, 10, 5));
    assert_eq!(prune(10).await, 0);
    let left = rollups(store, KEPT, MINUTE).await;
    assert_eq!(left.iter().map(|row| row.ok).sum::<u64>(), 2);
}

/// Engines count by the store's minutes, so a heartbeat returns the store's time.
pub async fn heartbeat_reports_database_time(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let engine = fixture.engine("a").await;
    let clock = async || fixture.store.schedule("unknown").await.expect("schedule").1;
    let before = clock().await;
    let reported = engine.heartbeat().await.now;
    let after = clock().await;
    assert!((before..=after).contains(&reported), "{before} {reported} {after}");
}
