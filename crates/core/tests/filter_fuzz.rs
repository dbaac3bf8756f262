//! Every text is parsed as a filter or refused with a position, in bounded time. A parsed
//! filter prints to a text with the same meaning.
//!
//! For a longer run: `FUZZ_SECONDS=600 cargo test -p task-engine-core --test filter_fuzz`.

use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use task_engine_core::filter::Filter;

/// The longest time for a text, even on a busy machine.
const ONE_TEXT_MAX: Duration = Duration::from_secs(5);
const BYTES_MAX: usize = 16 * 1024;

/// Valid filters to mutate.
const SEEDS: [&str; 12] = [
    "",
    "status=failed,cancelled class=send_mail error~429 created>now-2h priority>=5",
    r#"error="two words",one params."a.b".c<7 class="" error!~"say \"a\"\\""#,
    "created<2026-12-24T00:00:00Z updated>=now-1h30m due<=now+1s",
    "created>=\"2026-12-24 18:00\" created<\"2026-12-25 18:00\"",
    "started<2026-12-24T03:00:00Z ended>2026-12-24T02:00:00Z",
    "params.user.id=42 context.correlation_id~order-17 id>=100",
    r"error~a\ b\,c\u{1b}\n\t",
    "id=1,2,3 parent>=7 attempts>0 retries<=3 instance!=web-1 queue!~mail",
    "created>now-7d updated<now-100y due>-1s started>5m",
    "params.a.b.c.d.e.f=1 params.0.1=true params.x!=null",
    "class=\u{202e}abc correlation=é𝄞\u{0} status!=stopped",
];

const PIECES: [&str; 44] = [
    "status",
    "class",
    "error",
    "created",
    "updated",
    "due",
    "started",
    "ended",
    "queue",
    "id",
    "params",
    "context",
    "priority",
    "=",
    "!=",
    "~",
    "!~",
    ">",
    ">=",
    "<",
    "<=",
    ",",
    ".",
    "\"",
    "\\",
    "\\u{",
    "}",
    " ",
    "\t",
    "\n",
    "\0",
    "\u{1b}",
    "\u{202e}",
    "é",
    "𝄞",
    "9",
    "h",
    "-",
    "2026-12-24",
    "T18:00:00Z",
    "failed",
    "18446744073709551616",
    "1e999",
    "9999-12-31T23:59:59Z",
];

fn seconds() -> Duration {
    let asked = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(3))
}

fn mutated(random: &mut fastrand::Rng) -> String {
    let mut text: Vec<char> = SEEDS[random.usize(0..SEEDS.len())].chars().collect();
    for _ in 0..random.usize(0..6) {
        let at = random.usize(0..=text.len());
        match random.u8(0..5) {
            0 => drop(text.splice(at..at, PIECES[random.usize(0..PIECES.len())].chars())),
            1 => {
                let end = random.usize(at..=text.len());
                text.drain(at..end);
            }
            2 => text.insert(at, random.char(..)),
            3 => {
                let end = random.usize(at..=text.len());
                let copy = text[at..end].to_vec();
                drop(text.splice(at..at, copy));
            }
            _ => text.extend(SEEDS[random.usize(0..SEEDS.len())].chars()),
        }
    }
    text.into_iter().collect()
}

fn joined(random: &mut fastrand::Rng) -> String {
    (0..random.usize(0..30)).map(|_| PIECES[random.usize(0..PIECES.len())]).collect()
}

fn arbitrary(random: &mut fastrand::Rng) -> String {
    (0..random.usize(0..200)).map(|_| random.char(..)).collect()
}

/// Up to the longest valid text, and beyond.
fn long(random: &mut fastrand::Rng) -> String {
    let piece = PIECES[random.usize(0..PIECES.len())];
    let head = SEEDS[random.usize(0..SEEDS.len())];
    format!("{head} {}", piece.repeat(random.usize(1..=(BYTES_MAX + 100) / piece.len())))
}

fn check(text: &str, zone: &TimeZone) {
    let begun = Instant::now();
    match Filter::parse(text, zone) {
        Ok(filter) => {
            let printed = filter.to_string();
            if printed.len() <= BYTES_MAX {
                assert_eq!(Filter::parse(&printed, zone), Ok(filter), "{text:?}: {printed:?}");
            }
        }
        Err(bad) => {
            let places = 1..=text.chars().count() + 1;
            assert!(places.contains(&bad.at), "{text:?}: {bad}");
            assert!(!bad.why.is_empty(), "{text:?}");
        }
    }
    let words: Vec<&str> = text.split('\u{1b}').collect();
    let _ = Filter::parse_words(&words, zone);
    assert!(begun.elapsed() < ONE_TEXT_MAX, "{:?}: {text:?}", begun.elapsed());
}

#[test]
fn random_text_is_parsed_or_refused() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let zones = [TimeZone::UTC, TimeZone::get("Europe/Berlin").expect("a zone")];
    let begun = Instant::now();
    while begun.elapsed() < seconds() {
        let text = match random.u8(0..20) {
            0 => long(&mut random),
            1..=5 => arbitrary(&mut random),
            6..=10 => joined(&mut random),
            _ => mutated(&mut random),
        };
        check(&text, &zones[random.usize(0..2)]);
    }
}
