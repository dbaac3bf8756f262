use task_engine_core::instance::InstanceId;
use task_engine_store::activity::EndingsQuery;

use super::*;

fn ending(id: i64, class: &str, ago_secs: i64, error: Option<&str>) -> EndingRow {
    let stopped = Timestamp::from_second(1_000_000 - ago_secs).unwrap();
    EndingRow {
        task_id: TaskId(id),
        attempt: 1,
        class: class.to_owned(),
        queue: "default".to_owned(),
        instance_id: Some(InstanceId(1)),
        instance: None,
        started_at: Some(stopped),
        stopped_at: stopped,
        ends_task: None,
        retry_at: None,
        error: error.map(str::to_owned),
    }
}

fn rollup(class: &str, ago_secs: i64, ok: u64, failed: u64) -> RollupRow {
    let second = (1_000_020 - ago_secs).div_euclid(60) * 60;
    let mut run = TimeHistogram::default();
    (0..ok + failed).for_each(|n| run.add(Duration::from_millis(n * 10)));
    RollupRow {
        at: Timestamp::from_second(second).unwrap(),
        class: class.to_owned(),
        ok,
        failed,
        other: 1,
        run_secs_sum: 0.0,
        run,
        wait: TimeHistogram::default(),
    }
}

#[test]
fn recent_stats_sum_minutes_by_class() {
    // Twenty seconds into a minute.
    let now = Timestamp::from_second(1_000_040).unwrap();
    let rows = [
        rollup("a", 200, 50, 0),
        rollup("b", 60, 9, 10),
        rollup("a", 60, 300, 0),
        rollup("a", 0, 40, 0),
    ];
    let endings = [ending(1, "b", 50, Some("old")), ending(2, "b", 40, Some("new"))];
    let recent = RecentStats::of(&rows, &endings, now, Duration::from_secs(60));
    assert_eq!((recent.ended, recent.succeeded, recent.failed), (362, 349, 10));
    assert!((recent.secs - 80.0).abs() < 1e-9, "{}", recent.secs);
    assert!((recent.per_sec - 362.0 / 80.0).abs() < 1e-9, "{}", recent.per_sec);
    let [a, b] = &recent.classes[..] else { panic!("two classes, not {recent:?}") };
    assert_eq!((a.ended, a.failed, a.last_error.as_deref()), (342, 0, None));
    assert_eq!((b.ended, b.failed, b.other, b.last_error.as_deref()), (20, 10, 1, Some("new")));
    assert!(a.run_secs_p95.unwrap() <= 3.0, "{a:?}");
    let minutes = RecentStats::of(&rows, &[], now, Duration::from_secs(240));
    assert_eq!((minutes.ended, minutes.classes[0].ended), (413, 393));
    let nothing = RecentStats::of(&[], &[], now, Duration::from_secs(60));
    assert_eq!((nothing.ended, nothing.per_sec, nothing.classes.len()), (0, 0.0, 0));
}

#[test]
fn rate_counts_from_the_first_ending() {
    let now = Timestamp::from_second(1_000_040).unwrap();
    let recent = RecentStats::of(&[rollup("a", 0, 199, 0)], &[], now, HOUR);
    assert!((recent.per_sec - 10.0).abs() < 1e-9, "{}", recent.per_sec);
}

#[test]
fn cancelled_waiting_tasks_are_no_errors() {
    let mut cancelled = ending(1, "a", 5, Some("Cancelled: by hand"));
    cancelled.instance_id = None;
    assert_eq!(last_error(&[cancelled], "a"), None);
}

#[test]
fn near_id_ranges_are_merged() {
    let mut query = EndingsQuery::new(100, MINUTE);
    query.below([5, 950, 1000, 900, 850].map(TaskId).to_vec(), 9);
    let ranges: Vec<_> = query.ids.iter().map(|(from, to)| (from.0, to.0)).collect();
    assert_eq!(ranges, [(0, 1000), (0, 900), (0, 5)]);
    query.ids.clear();
    query.below((0..9).map(|n| TaskId(n * 1000)).collect(), 3);
    assert_eq!(query.ids.len(), 3);
}
