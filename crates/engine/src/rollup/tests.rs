use super::*;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: i64 = 60 * MINUTE_US;

fn classes(count: usize) -> Vec<Arc<str>> {
    (0..count).map(|n| format!("class {n:03}").into()).collect()
}

fn labels(class: ClassNumber) -> EndingLabels {
    EndingLabels {
        awaited: false,
        limited: false,
        class,
        due_at: Timestamp::from_microsecond(HOUR).unwrap(),
    }
}

/// With a clock at one hour since 1970.
fn with_clock(names: &[Arc<str>], at: Instant) -> RollupState {
    let mut state = RollupState::new(names.len());
    state.set_clock(DatabaseClock { at, time_us: HOUR }, at, names);
    state
}

fn totals(rows: &[ClassMinute]) -> Vec<(i64, i32, &str, u64)> {
    let total = |row: &ClassMinute| row.counts.ended();
    rows.iter().map(|row| (row.minute, row.generation, &*row.class, total(row))).collect()
}

#[test]
fn early_endings_count_later() {
    let (names, at) = (classes(2), Instant::now());
    let mut state = RollupState::new(2);
    state.begin_minute_of(at, &names);
    state.add(AttemptKind::Ok, Some((2 * SECOND, at)), labels(1));
    assert!(state.rows(&names).is_empty());
    state.set_clock(DatabaseClock { at, time_us: HOUR + 5_000_000 }, at, &names);
    let (_, row) = state.rows(&names).remove(0);
    assert_eq!((row.minute, row.class.as_str(), row.counts.ok), (60, "class 001", 1));
    // Due at the hour, begun three seconds later, ended after two.
    assert_eq!((row.counts.run.max_us, row.counts.run.total()), (2_000_000, 1));
    assert_eq!((row.counts.wait.max_us, row.counts.wait.total()), (3_000_000, 1));
    assert_eq!(row.counts.run_us, 2_000_000);
}

#[test]
fn only_new_counts_are_sent() {
    let (names, at) = (classes(2), Instant::now());
    let mut state = with_clock(&names, at);
    state.add(AttemptKind::Ok, None, labels(0));
    let rows = state.rows(&names);
    state.sent(&rows);
    assert!(state.rows(&names).is_empty());
    state.add(AttemptKind::Failed, None, labels(0));
    state.add(AttemptKind::Other, None, labels(1));
    let rows: Vec<_> = state.rows(&names).into_iter().map(|(_, row)| row).collect();
    assert_eq!(totals(&rows), [(60, 0, "class 000", 2), (60, 0, "class 001", 1)]);
    state.begin_minute_of(at + 60 * SECOND, &names);
    assert_eq!(state.past, rows, "the numbers as they stand, not the difference");
    assert!(state.rows(&names).is_empty());
}

#[test]
fn clock_step_back_replaces_nothing() {
    let (names, at) = (classes(1), Instant::now());
    let mut state = with_clock(&names, at);
    state.add(AttemptKind::Ok, None, labels(0));
    // By a little: the minute goes on.
    state.set_clock(DatabaseClock { at, time_us: HOUR - 1 }, at, &names);
    state.add(AttemptKind::Ok, None, labels(0));
    // By ten minutes, and on to where it was.
    state.set_clock(DatabaseClock { at, time_us: HOUR - 10 * MINUTE_US }, at, &names);
    state.add(AttemptKind::Ok, None, labels(0));
    state.begin_minute_of(at + 600 * SECOND, &names);
    state.add(AttemptKind::Ok, None, labels(0));
    state.begin_minute_of(at + 660 * SECOND, &names);
    let name = "class 000";
    assert_eq!(totals(&state.past), [(60, 0, name, 2), (50, 1, name, 1), (60, 1, name, 1)]);
}

#[test]
fn unsent_rows_are_bounded() {
    let (names, at) = (classes(70), Instant::now());
    let mut state = with_clock(&names, at);
    for minute in 0..30 {
        state.begin_minute_of(at + minute * 60 * SECOND, &names);
        for class in (0..70).chain(0..70) {
            state.add(AttemptKind::Ok, None, labels(class));
        }
        let rows: Vec<_> = state.rows(&names).into_iter().map(|(_, row)| row).collect();
        assert_eq!(rows.len(), CLASSES_MAX + 1);
        assert_eq!(totals(&rows)[50], (60 + i64::from(minute), 0, "", 40));
        assert_eq!(rows.iter().map(|row| row.counts.ended()).sum::<u64>(), 140);
    }
    assert_eq!(state.past.len(), PAST_ROWS_MAX);
    assert_eq!(state.past[0].minute, 60 + 19, "the newest are kept");
    let past = std::mem::take(&mut state.past);
    state.begin_minute_of(at + 3000 * SECOND, &names);
    state.put_back(past);
    assert_eq!(state.past.len(), PAST_ROWS_MAX);
    assert_eq!(state.past[0].minute, 60 + 20);
    assert!(state.past.is_sorted_by_key(|row| row.minute));
}
