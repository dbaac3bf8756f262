//! Measures the response times of a dashboard with many open pages.
//!
//! ```text
//! task-engine web 8642 &
//! cargo run --release -p task-engine-web --example visitors -- http://127.0.0.1:8642 50 30
//! ```
//!
//! Each visitor has an event stream open and reloads its page every two seconds, as
//! an open page does. Prints the response times by page.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const PAGES: [&str; 9] = [
    "/",
    "/?span=day",
    "/tasks",
    "/tasks?filter=status%3Dfailed",
    "/errors",
    "/queues",
    "/schedules",
    "/instances",
    "/health",
];
const READS_EVERY: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, visitors, secs] = &args[..] else {
        return Err("usage: visitors URL VISITORS SECONDS".into());
    };
    let (visitors, time) = (visitors.parse::<usize>()?, Duration::from_secs(secs.parse()?));
    let (send, receive) = mpsc::channel();
    for visitor in 0..visitors {
        let (send, url) = (send.clone(), url.clone());
        thread::spawn(move || visit(&url, visitor, time, &send));
    }
    drop(send);
    let mut times: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    let mut failed = 0;
    for (page, answer) in receive {
        match answer {
            Ok(took) => times.entry(page).or_default().push(took),
            Err(error) => {
                failed += 1;
                eprintln!("{page}: {error}");
            }
        }
    }
    println!("{:34} {:>6} {:>8} {:>8} {:>8}", "page", "times", "p50 ms", "p95 ms", "max ms");
    for (page, mut took) in times {
        took.sort();
        let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1e3;
        println!("{page:34} {:>6} {:>8.1} {:>8.1} {:>8.1}", took.len(), at(50), at(95), at(100));
    }
    if failed > 0 { Err(format!("{failed} answers failed").into()) } else { Ok(()) }
}

type Answer = (&'static str, Result<Duration, String>);

fn visit(url: &str, visitor: usize, time: Duration, to: &mpsc::Sender<Answer>) {
    let page = PAGES[visitor % PAGES.len()];
    let agent = ureq::Agent::new_with_defaults();
    let events = format!("{url}/events");
    let listening = agent.clone();
    // Read to its end, which comes with the end of this program.
    thread::spawn(move || {
        if let Ok(mut answer) = listening.get(&events).call() {
            let mut sink = [0; 4096];
            let mut body = answer.body_mut().as_reader();
            while body.read(&mut sink).is_ok_and(|bytes| bytes > 0) {}
        }
    });
    // Not all at once.
    thread::sleep(READS_EVERY * u32::try_from(visitor % 20).unwrap_or(0) / 20);
    let begun = Instant::now();
    while begun.elapsed() < time {
        let asked = Instant::now();
        let answer = agent.get(&format!("{url}{page}")).call();
        let answer = answer.and_then(|mut answer| answer.body_mut().read_to_string());
        let took = asked.elapsed();
        if to.send((page, answer.map(|_| took).map_err(|error| error.to_string()))).is_err() {
            return;
        }
        thread::sleep(READS_EVERY.saturating_sub(took));
    }
}
