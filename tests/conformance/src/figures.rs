//! What engines have counted is summed, once, for as long as charts want it.

use std::time::Duration;

use task_engine_core::instance::InstanceId;
use task_engine_store::contract::Store;
use task_engine_store::rollup::{
    BUCKETS, ClassMinute, KEPT, RollupQuery, RollupRow, Tally, TimeHistogram,
};

use crate::Database;
use crate::fixture::Fixture;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// The minute that it is by the store's clock.
async fn this_minute(store: &dyn Store) -> i64 {
    let (_, now) = store.schedule("nobody's").await.expect("schedule");
    now.as_second().div_euclid(60)
}

/// So many of each, each in a bucket of its own.
fn tally(ok: u64, failed: u64, other: u64) -> Tally {
    let (mut run, mut wait) = (TimeHistogram::default(), TimeHistogram::default());
    (run.counts[0], run.counts[BUCKETS - 1]) = (ok, failed + other);
    wait.counts[3] = ok + failed + other;
    (run.max_us, wait.max_us) = (100_000_000_000 + failed, 9_000 + ok);
    Tally { ok, failed, other, run_us: 1_500_000 * ok, run, wait }
}

fn row(minute: i64, class: &str, tally: Tally) -> ClassMinute {
    ClassMinute { minute, generation: 0, class: class.to_owned(), tally }
}

async fn send(store: &dyn Store, instance: i64, rows: &[ClassMinute]) {
    store.write_rollups(InstanceId(instance), rows).await.expect("figures");
}

async fn look(store: &dyn Store, over: Duration, step: Duration) -> Vec<RollupRow> {
    store.rollups(RollupQuery { over, step }).await.expect("rollups")
}

/// How many of each, by the minute that a step begins with.
fn short(rows: &[RollupRow]) -> Vec<(i64, &str, u64, u64, u64)> {
    let short = |row: &RollupRow| (row.at.as_second() / 60, row.ok, row.failed, row.other);
    let all = rows.iter().map(|row| (short(row), row.class.as_str()));
    all.map(|((minute, ok, failed, other), class)| (minute, class, ok, failed, other)).collect()
}

/// The figures of all engines are summed by class and step.
pub async fn rollups_are_summed_by_class(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    send(store, 1, &[]).await;
    assert_eq!(look(store, HOUR, MINUTE).await, []);
    // Steps begin at whole multiples: the one of ten minutes that is over.
    let ten = this_minute(store).await / 10 * 10 - 10;
    let odd = "'; DROP \"é\" $1 ?1";
    send(
        store,
        1,
        &[
            row(ten, "a", tally(3, 2, 1)),
            row(ten, odd, tally(1, 0, 0)),
            row(ten + 1, "a", tally(5, 0, 0)),
            row(ten + 9, "", tally(0, 0, 7)),
        ],
    )
    .await;
    send(store, 2, &[row(ten, "a", tally(10, 20, 30)), row(ten + 10, "a", tally(0, 1, 0))]).await;
    let other = Fixture::open(db).await;
    let rows = look(&*other.store, HOUR, MINUTE).await;
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

    let rows = look(store, HOUR, 10 * MINUTE).await;
    assert_eq!(
        short(&rows),
        [(ten, "", 0, 0, 7), (ten, odd, 1, 0, 0), (ten, "a", 18, 22, 31), (ten + 10, "a", 0, 1, 0),]
    );
}

/// What is sent again counts once; what is newer replaces, what comes late does
/// not; a minute that comes again, because the clock went back, is added.
pub async fn repeated_rollups_count_once(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    let minute = this_minute(store).await - 5;
    let seen = async || {
        let rows = look(store, HOUR, MINUTE).await;
        let [row] = &rows[..] else { panic!("{rows:?}") };
        (row.ok, row.failed, row.run.counts[0], row.wait.counts[3])
    };
    let (first, second) = (row(minute, "a", tally(3, 2, 0)), row(minute, "a", tally(4, 2, 0)));
    send(store, 1, std::slice::from_ref(&first)).await;
    send(store, 1, std::slice::from_ref(&first)).await;
    assert_eq!(seen().await, (3, 2, 3, 5));
    send(store, 1, std::slice::from_ref(&second)).await;
    send(store, 1, std::slice::from_ref(&second)).await;
    assert_eq!(seen().await, (4, 2, 4, 6));
    send(store, 1, &[first]).await;
    assert_eq!(seen().await, (4, 2, 4, 6), "the late one changes nothing");
    let again = ClassMinute { generation: 1, ..row(minute, "a", tally(1, 0, 0)) };
    send(store, 1, &[again.clone(), second]).await;
    send(store, 1, &[again]).await;
    assert_eq!(seen().await, (5, 2, 5, 7));
}

/// Only the time that is asked for is told, from a whole minute on, however long the
/// steps are; nothing of the future, should the clock have been there.
pub async fn rollups_cover_requested_time(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    let now = this_minute(store).await;
    let minutes = [now - 24 * 60, now - 62, now - 30, now + 60];
    for minute in minutes {
        send(store, 1, &[row(minute, "a", tally(1, 0, 0))]).await;
    }
    let found = async |over, step| {
        let rows = look(store, over, step).await;
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

/// Old figures are removed, so many in a step.
pub async fn old_rollups_are_removed_in_steps(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    let now = this_minute(store).await;
    let old = now - i64::try_from(KEPT.as_secs() / 60).expect("minutes");
    let rows: Vec<_> = (1..=25).map(|n| row(old - n, "a", tally(1, 0, 0))).collect();
    send(store, 1, &rows).await;
    let kept = [row(old + 5, "a", tally(1, 0, 0)), row(now, "a", tally(1, 0, 0))];
    send(store, 1, &kept).await;
    let prune = async |limit| store.prune_rollups(limit).await.expect("prune_rollups");
    assert_eq!((prune(10).await, prune(10).await, prune(10).await), (10, 10, 5));
    assert_eq!(prune(10).await, 0);
    let left = look(store, KEPT, MINUTE).await;
    assert_eq!(left.iter().map(|row| row.ok).sum::<u64>(), 2);
}

/// Engines count by the store's minutes, so a heartbeat tells its time.
pub async fn heartbeat_reports_database_time(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let engine = fixture.engine("a").await;
    let clock = async || fixture.store.schedule("nobody's").await.expect("schedule").1;
    let before = clock().await;
    let told = engine.heartbeat().await.now;
    let after = clock().await;
    assert!((before..=after).contains(&told), "{before} {told} {after}");
}
