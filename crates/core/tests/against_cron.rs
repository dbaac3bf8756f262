//! Compares slots with a second implementation: the minute-by-minute loop of Debian's cron
//! (Vixie), with its own parser.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use task_engine_core::schedule::Timetable;
use task_engine_core::schedule::cron::Cron;

const ZONES: [&str; 6] = [
    "America/New_York",
    "Europe/Paris",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Sao_Paulo",
    "UTC",
];

/// A crontab entry: five sets, and the flags of cron.
struct Entry {
    fields: [Vec<bool>; 5],
    wildcard: bool,
    star_in_days: bool,
}

impl Entry {
    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let read = |word: &str, min: usize, max: usize| {
            let mut set = vec![false; 60];
            for item in word.split(',') {
                let (range, step) = item.split_once('/').unwrap_or((item, "1"));
                let (first, last) = match range.split_once('-') {
                    _ if range == "*" => (min, max),
                    Some((first, last)) => (first.parse().unwrap(), last.parse().unwrap()),
                    None => (range.parse().unwrap(), range.parse().unwrap()),
                };
                let mut at = first;
                while at <= last {
                    set[at] = true;
                    at += step.parse::<usize>().unwrap();
                }
            }
            set
        };
        let mut week = read(words[4], 0, 7);
        if week[0] || week[7] {
            week[0] = true;
        }
        let star = |n: usize| words[n].starts_with('*');
        Self {
            fields: [
                read(words[0], 0, 59),
                read(words[1], 0, 23),
                read(words[2], 1, 31),
                read(words[3], 1, 12),
                week,
            ],
            wildcard: star(0) || star(1),
            star_in_days: star(2) || star(4),
        }
    }

    fn matches(&self, time: DateTime) -> bool {
        let has = |n: usize, value: i8| self.fields[n][usize::try_from(value).unwrap()];
        let (day, week) = (has(2, time.day()), has(4, time.weekday().to_sunday_zero_offset()));
        has(0, time.minute())
            && has(1, time.hour())
            && has(3, time.month())
            && if self.star_in_days { day && week } else { day || week }
    }
}

/// The minutes at which cron starts the entry, from `first` to `last`, both included.
fn cron(entry: &Entry, zone: &TimeZone, first: Timestamp, last: Timestamp) -> Vec<Timestamp> {
    let minute = SignedDuration::from_mins(1);
    let mut started = Vec::new();
    // The virtual clock of cron: the last minute that it has processed. It never goes
    // backwards.
    let mut virtual_clock = zone.to_datetime(first - minute);
    let mut now = first;
    while now <= last {
        let local = zone.to_datetime(now);
        let mut starts = entry.wildcard && entry.matches(local);
        while virtual_clock < local {
            virtual_clock = virtual_clock.checked_add(minute).unwrap();
            starts |= !entry.wildcard && entry.matches(virtual_clock);
        }
        if starts {
            started.push(now);
        }
        now += minute;
    }
    started
}

/// A random expression.
fn expression(chance: &mut fastrand::Rng) -> String {
    let mut field = |min: u32, max: u32, common: &[&str]| -> String {
        let one = |chance: &mut fastrand::Rng| match chance.u32(0..10) {
            0..4 => common[chance.usize(0..common.len())].to_owned(),
            4..8 => chance.u32(min..=max).to_string(),
            8 => {
                let first = chance.u32(min..=max);
                format!("{first}-{}", chance.u32(first..=max))
            }
            _ => {
                let first = chance.u32(min..=max);
                let last = chance.u32(first..=max);
                format!("{first}-{last}/{}", chance.u32(1..=7))
            }
        };
        let first = one(chance);
        if first.starts_with('*') || chance.u8(0..3) > 0 {
            first
        } else {
            format!("{first},{}", one(chance))
        }
    };
    // Around the hours at which clocks change.
    [
        field(0, 59, &["*", "*/5", "*/7", "0", "30", "0,15,30,45"]),
        field(0, 23, &["*", "*/2", "0-3", "1,2,3", "2", "1", "0", "23"]),
        field(1, 31, &["*", "*", "*", "*/2", "*/10"]),
        field(1, 12, &["*", "*", "*", "*/3", "3,4,10,11"]),
        field(0, 7, &["*", "*", "*", "*/2", "1-5", "0,6"]),
    ]
    .join(" ")
}

/// Some days, mostly around a change of clocks.
fn window(chance: &mut fastrand::Rng, zone: &TimeZone) -> (Timestamp, Timestamp) {
    let begin: Timestamp = "2023-01-01T00:00:00Z".parse().unwrap();
    let somewhere = begin + SignedDuration::from_mins(chance.i64(0..8 * 366 * 1440));
    let change = zone.following(somewhere).next().map(|change| change.timestamp());
    let middle = change.filter(|_| chance.u8(0..4) > 0).unwrap_or(somewhere);
    // Any whole minutes.
    let middle = Timestamp::from_second(middle.as_second() / 60 * 60).unwrap();
    let before = SignedDuration::from_mins(chance.i64(1..3000));
    (middle - before, middle + SignedDuration::from_mins(chance.i64(1..3000)))
}

#[test]
fn slots_equal_those_of_cron() {
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let (mut slots, mut changes) = (0, 0);
    for _ in 0..800 {
        let text = expression(&mut chance);
        let name = ZONES[chance.usize(0..ZONES.len())];
        let zone = TimeZone::get(name).unwrap();
        let (first, last) = window(&mut chance, &zone);
        changes += usize::from(zone.to_offset(first) != zone.to_offset(last));
        // If cron starts inside a repeated hour, it does not know about the first one,
        // and a schedule does. So both start on days without a clock change.
        let first = first - SignedDuration::from_hours(4);
        let expected = cron(&Entry::parse(&text), &zone, first, last);
        let timetable =
            Timetable { rule: text.parse().unwrap(), zone, anchor: Timestamp::UNIX_EPOCH };
        let found = timetable.newest(first, last, usize::MAX);
        let quiet = first + SignedDuration::from_hours(4);
        let after_start = |times: Vec<Timestamp>| -> Vec<Timestamp> {
            times.into_iter().filter(|time| *time >= quiet).collect()
        };
        let (found, expected) = (after_start(found), after_start(expected));
        assert_eq!(found, expected, "{text:?} in {name} from {quiet} to {last}, SEED={seed}");
        slots += found.len();
    }
    assert!(slots > 5_000, "{slots} slots are too few to mean anything");
    assert!(changes > 200, "{changes} changes are too few to mean anything");
}

/// Every text is parsed or refused with a position in it, and a parsed expression can be
/// searched.
#[test]
fn random_text_is_parsed_or_refused() {
    let letters: Vec<char> = "0123456789*/,-#LWlw? @MONJANsun\u{e9}".chars().collect();
    let mut chance = fastrand::Rng::with_seed(7);
    let mut understood = 0;
    for _ in 0..20_000 {
        let length = chance.usize(0..4);
        let mut word = |_| (0..=length).map(|_| letters[chance.usize(0..letters.len())]).collect();
        let text = (0..5).map(&mut word).collect::<Vec<String>>().join(" ");
        match Cron::parse(&text) {
            Ok(_) => understood += 1,
            Err(bad) => assert!((1..=text.chars().count() + 1).contains(&bad.at), "{bad}"),
        }
    }
    assert!(understood > 10, "{understood}");
}
