//! Parses random rules in random time zones: every call returns in bounded time, and a rule
//! has the same slots after it was stored and read again.
//!
//! `FUZZ_SECONDS=600 cargo test -p task-engine-core --test cron_fuzz` runs longer;
//! `FUZZ_SEED` repeats a run.

use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use task_engine_core::json::Json;
use task_engine_core::schedule::{Schedule, ScheduleDefinition, ScheduleRule, Timetable};
use task_engine_core::task::NewTask;

/// Almost all calls take microseconds. A rule that never fires may be searched up to the
/// last year of the calendar: a second without optimisation, more on a loaded machine.
const CALL_MAX: Duration = Duration::from_secs(30);

const RULES: [&str; 24] = [
    "* * * * *",
    "*/5 * * * *",
    "0 3 * * *",
    "30 2,14 * * *",
    "0 0 29 2 *",
    "0 0 31 */2 1-5",
    "* * * * * *",
    "59 59 23 31 12 *",
    "0 0 1 1 *",
    "15-45/7 0-23/3 1,15 JAN-DEC MON-FRI",
    "0 12 L * *",
    "0 12 15W * *",
    "0 12 * * 5#2",
    "0 12 * * 5L",
    "@yearly",
    "@monthly",
    "@weekly",
    "@daily",
    "@hourly",
    "every 15m",
    "every 100ms",
    "every 366 days",
    "@every 1h30m",
    "0 0 30 2 *",
];

const PIECES: [&str; 40] = [
    "*",
    "/",
    "-",
    ",",
    " ",
    "\t",
    "0",
    "1",
    "2",
    "5",
    "7",
    "9",
    "12",
    "23",
    "24",
    "29",
    "30",
    "31",
    "59",
    "60",
    "99999999999999999999",
    "L",
    "W",
    "#",
    "?",
    "@",
    "every ",
    "daily",
    "MON",
    "sun",
    "JAN",
    "dec",
    "ms",
    "h",
    "P1D",
    "é",
    "\u{0}",
    "\u{202e}",
    "~",
    "+",
];

const ZONES: [&str; 14] = [
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Gaza",
    "America/Scoresbysund",
];

#[test]
fn random_rules_return_in_time() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = setting("FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let until = Instant::now() + Duration::from_secs(setting("FUZZ_SECONDS").unwrap_or(3));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut tried, mut understood) = (0_u64, 0_u64);
    let mut slowest = (Duration::ZERO, String::new());
    while Instant::now() < until || understood < 100 {
        let text = if random.bool() { mutated(&mut random) } else { composed(&mut random) };
        let zone = ZONES[random.usize(0..ZONES.len())];
        let begun = Instant::now();
        let rule = text.parse::<ScheduleRule>();
        assert!(begun.elapsed() < CALL_MAX, "seed {seed}: reading {text:?} takes long");
        tried += 1;
        match rule {
            Ok(rule) => {
                understood += 1;
                slots_follow_each_other(rule, &text, zone, &mut random, seed);
                stored_rule_is_the_same(&text, zone, &mut random, seed);
                slowest = slowest.max((begun.elapsed(), text));
            }
            Err(bad) => assert!(!bad.to_string().is_empty(), "seed {seed}: {text:?}"),
        }
    }
    println!(
        "seed {seed}: {tried} rules, of which {understood} were understood; slowest: {slowest:?}"
    );
}

/// A rule with some characters changed, doubled, removed or moved.
fn mutated(random: &mut fastrand::Rng) -> String {
    let mut text: Vec<char> = RULES[random.usize(0..RULES.len())].chars().collect();
    for _ in 0..random.usize(0..4) {
        let at = random.usize(0..=text.len());
        match random.u32(0..4) {
            0 if at < text.len() => drop(text.remove(at)),
            1 if at < text.len() => text.insert(at, text[at]),
            2 if at < text.len() => text.swap(at, 0),
            _ => {
                let piece = PIECES[random.usize(0..PIECES.len())];
                text.splice(at..at, piece.chars());
            }
        }
    }
    text.into_iter().collect()
}

fn composed(random: &mut fastrand::Rng) -> String {
    let fields = if random.u32(0..8) == 0 { random.usize(0..9) } else { random.usize(5..7) };
    let field = |random: &mut fastrand::Rng| -> String {
        let pieces = 1 + random.usize(0..3);
        (0..pieces).map(|_| PIECES[random.usize(0..PIECES.len())]).collect()
    };
    (0..fields).map(|_| field(random)).collect::<Vec<_>>().join(" ")
}

/// A random time, also at both ends of the calendar.
fn random_time(random: &mut fastrand::Rng) -> Timestamp {
    let seconds = match random.u32(0..10) {
        0 => random.i64(Timestamp::MIN.as_second()..=Timestamp::MAX.as_second()),
        1 => Timestamp::MAX.as_second() - random.i64(0..100_000),
        _ => random.i64(0..4_102_444_800),
    };
    Timestamp::new(seconds, random.i32(0..1_000_000_000)).unwrap_or(Timestamp::MAX)
}

fn slots_follow_each_other(
    rule: ScheduleRule,
    text: &str,
    zone: &str,
    random: &mut fastrand::Rng,
    seed: u64,
) {
    let zone_of = TimeZone::get(zone).expect("a time zone");
    let timetable = Timetable { rule, zone: zone_of, anchor: random_time(random) };
    let mut time = random_time(random);
    let begun = Instant::now();
    for _ in 0..3 {
        let Some(next) = timetable.next_after(time) else { return };
        assert!(next > time, "seed {seed}: {text:?} in {zone} after {time}: {next}");
        time = next;
    }
    let last = time.checked_add(SignedDuration::from_secs(3)).unwrap_or(Timestamp::MAX);
    let newest = timetable.newest(time, last, 3);
    assert!(newest.is_sorted() && newest.iter().all(|slot| (time..=last).contains(slot)));
    assert!(timetable.preview(time, 2).len() <= 2);
    let took = begun.elapsed();
    assert!(took < CALL_MAX, "seed {seed}: {text:?} in {zone} after {time} took {took:?}");
}

fn stored_rule_is_the_same(text: &str, zone: &str, random: &mut fastrand::Rng, seed: u64) {
    let task = NewTask::new("a", Json::empty_object()).expect("a task");
    let schedule = Schedule::new("x", text).time_zone(zone).new_task(task);
    // It never fires, or cannot be stored.
    let Ok(definition) = schedule.definition() else { return };
    let stored = definition.to_json().expect("JSON");
    let read = ScheduleDefinition::from_json(&stored).expect("a definition");
    assert_eq!(read, definition, "seed {seed}: {text:?}");
    let (anchor, time) = (random_time(random), random_time(random));
    let slots = |definition: &ScheduleDefinition| {
        let timetable = definition.timetable(anchor).expect("a timetable");
        (timetable.next_after(time), timetable.preview(time, 2))
    };
    assert_eq!(slots(&read), slots(&definition), "seed {seed}: {text:?} in {zone}");
}
