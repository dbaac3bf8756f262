//! Random changes to good input, for tests of what comes from outside. Bounded in
//! time; `FUZZ_SECONDS` makes it longer, `FUZZ_SEED` repeats a run.

use std::time::{Duration, Instant};

/// Tries changed copies of good inputs, for a moment.
pub(crate) fn mutated(good: &[&str], mut try_one: impl FnMut(&[u8])) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = Duration::from_secs(number("FUZZ_SECONDS").unwrap_or(1));
    let seed = number("FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    // Shown if the test fails.
    println!("FUZZ_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let began = Instant::now();
    while began.elapsed() < time {
        let mut input = good[random.usize(..good.len())].as_bytes().to_vec();
        for _ in 0..=random.usize(..4) {
            change(&mut input, good, &mut random);
        }
        try_one(&input);
    }
}

fn change(input: &mut Vec<u8>, good: &[&str], random: &mut fastrand::Rng) {
    const PIECES: [&[u8]; 14] = [
        b"\"",
        b"{",
        b"}",
        b"[",
        b"]",
        b"\n",
        b"\0",
        b"\xff",
        b"\\u0000",
        b"null",
        b"-1",
        b"1e999",
        b"[[[[[[[[[[[[[[[[",
        b"\xf0\x9f\x98\x80",
    ];
    let at = random.usize(..=input.len());
    let end = (at + random.usize(..20)).min(input.len());
    match random.u8(..6) {
        0 => drop(input.drain(at..end)),
        1 => drop(input.splice(at..end, PIECES[random.usize(..PIECES.len())].iter().copied())),
        2 => input.truncate(at),
        3 => {
            let other = good[random.usize(..good.len())].as_bytes();
            let from = random.usize(..=other.len());
            drop(input.splice(at..at, other[from..].iter().copied()));
        }
        4 => {
            let copy = input[at..end].repeat(random.usize(1..50));
            drop(input.splice(at..at, copy));
        }
        _ if !input.is_empty() => {
            let at = at.min(input.len() - 1);
            input[at] = random.u8(..);
        }
        _ => {}
    }
}
