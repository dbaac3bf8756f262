//! Runs faults, a few at a time, and prints the results.
//!
//! Arguments are parts of names, as with other tests. From the environment:
//! `FAULTS=soak` for many and long runs, `FAULT_SEED` for the seed of a run that
//! failed, `FAULT_JOBS` for how many run at a time, `FAULT_TABLE` for a file that
//! gets the table, `FAULT_RUNS` for how often each runs.

use std::collections::BTreeMap;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::harness::context::TestContext;
use crate::harness::machine::{ControlGroup, Network, Volume, run_command};
use crate::registry::{Coverage, FAULTS, Fault, Scenario, StoreKind};

/// One run of one fault.
#[derive(Debug)]
struct Run {
    fault: usize,
    kind: StoreKind,
    scenario: &'static Scenario,
    seed: u64,
}

/// Its result.
#[derive(Debug)]
struct RunResult {
    notes: Vec<String>,
    failure: Option<String>,
}

/// Called by `cargo test`.
#[must_use]
pub fn main(program: &Path) -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let wanted: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let soak = env::var("FAULTS").is_ok_and(|word| word == "soak");
    let mut runs = select_runs(&wanted, soak);
    if words.iter().any(|word| word == "--list") {
        runs.iter().for_each(|run| println!("{}: test", name(run)));
        return ExitCode::SUCCESS;
    }
    let skipped = skip_unavailable(&mut runs);
    println!("\nrunning {} faults", runs.len());
    // The location only; backtraces are the same for all.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        println!("failed at {place}");
    }));
    let outcomes = run_all(&runs, program, soak);
    let failed: Vec<_> =
        runs.iter().zip(&outcomes).filter(|(_, outcome)| outcome.failure.is_some()).collect();
    if !runs.is_empty() {
        let table = table(&runs, &outcomes);
        if let Some(file) = env::var_os("FAULT_TABLE") {
            std::fs::write(&file, &table).expect("the file for the table can be written");
        } else if wanted.is_empty() {
            println!("\n{table}");
        }
    }
    for (run, outcome) in &failed {
        let (name, seed) = (name(run), run.seed);
        let words = outcome.failure.as_deref().unwrap_or_default();
        println!("\n---- {name}, FAULT_SEED={seed}\n{words}");
    }
    println!("\nfaults: {} passed, {} failed", runs.len() - failed.len(), failed.len());
    if skipped > 0 {
        println!(
            "faults: {skipped} NOT RUN: they need resources of this machine, most of them root"
        );
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Removes runs that this machine cannot execute: small volumes, control groups and
/// namespaces need root, and many containers have none. Prints which, and why.
fn skip_unavailable(runs: &mut Vec<Run>) -> usize {
    std::panic::set_hook(Box::new(|_| {}));
    let all = runs.len();
    let mut asked: BTreeMap<&str, Result<(), String>> = BTreeMap::new();
    runs.retain(|run| {
        let id = FAULTS[run.fault].id;
        match asked.entry(id).or_insert_with(|| is_available(id)) {
            Ok(()) => true,
            Err(why) => {
                println!("{} … NOT RUN: {why}", name(run));
                task_engine_test_harness::not_run(&name(run), why);
                false
            }
        }
    });
    all - runs.len()
}

/// Whether the resources of a fault are available; if not, the reason.
fn is_available(id: &str) -> Result<(), String> {
    let tried = catch_unwind(|| match id {
        "F5" => {
            let group = ControlGroup::new("freezer");
            group.freeze();
            group.thaw();
        }
        "F6" => drop(run_command("unshare", &["-T", "true"])),
        "F11" => drop(Network::new()),
        "F19" | "F20" | "F21" => {
            let folder = tempfile::tempdir().expect("a folder");
            drop(Volume::mount(folder.path().join("small"), 1));
        }
        "F27" => ControlGroup::new("memory").limit_memory(64 << 20),
        _ => {}
    });
    tried.map_err(|panic| panic_message(&*panic))
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").trim().to_owned()
}

fn name(run: &Run) -> String {
    format!("{}_{}_{}", FAULTS[run.fault].id, run.scenario.name, run.kind)
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| {
        text.parse().unwrap_or_else(|_| panic!("{variable} is a whole number, not {text:?}"))
    })
}

fn select_runs(wanted: &[&String], soak: bool) -> Vec<Run> {
    let mut runs = Vec::new();
    for (fault, row) in FAULTS.iter().enumerate() {
        let Coverage::Scenarios(scenarios) = row.coverage else {
            continue;
        };
        for scenario in scenarios {
            for kind in scenario.stores {
                let times = if soak { scenario.soak_runs } else { 1 };
                for _ in 0..number("FAULT_RUNS").unwrap_or(times) {
                    let seed = number("FAULT_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
                    runs.push(Run { fault, kind: *kind, scenario, seed });
                }
            }
        }
    }
    let fits = |run: &Run, word: &String| {
        let name = name(run);
        name.contains(word) || name.split('_').next() == Some(word)
    };
    runs.retain(|run| wanted.is_empty() || wanted.iter().any(|word| fits(run, word)));
    runs
}

fn run_all(runs: &[Run], program: &Path, soak: bool) -> Vec<RunResult> {
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<BTreeMap<usize, RunResult>> = Mutex::default();
    let jobs = usize::try_from(number("FAULT_JOBS").unwrap_or(3)).unwrap_or(1).max(1);
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(runs.len()) {
            scope.spawn(|| {
                while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run_one(run, program, soak);
                    let place = std::ptr::from_ref(run).addr() - runs.as_ptr().addr();
                    let place = place / size_of::<Run>();
                    outcomes.lock().expect("no panic in between").insert(place, outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("no panic in between").into_values().collect()
}

fn run_one(run: &Run, program: &Path, soak: bool) -> RunResult {
    let begun = Instant::now();
    let mut ctx = TestContext::new(run.kind, program, run.seed, soak);
    let done = catch_unwind(AssertUnwindSafe(|| (run.scenario.run)(&mut ctx)));
    let seconds = begun.elapsed().as_secs_f64();
    let failure = done.err().map(|panic| panic_message(&*panic));
    let verdict = if failure.is_none() { "ok" } else { "FAILED" };
    let notes = std::mem::take(&mut ctx.notes);
    println!("{} … {verdict} ({seconds:.1} s, seed {}; {})", name(run), run.seed, notes.join("; "));
    RunResult { notes, failure }
}

/// One row per fault.
fn table(runs: &[Run], outcomes: &[RunResult]) -> String {
    let mut table = String::from(
        "| # | fault | injected how | runs | promises held | seen |\n|---|---|---|---|---|---|\n",
    );
    for (place, fault) in FAULTS.iter().enumerate() {
        let of_it: Vec<_> =
            runs.iter().zip(outcomes).filter(|(run, _)| run.fault == place).collect();
        let (ran, held, seen) = match fault.coverage {
            Coverage::Scenarios(_) if of_it.is_empty() => continue,
            Coverage::Scenarios(_) => described(fault, &of_it),
            Coverage::Tests(tests) => {
                let names: Vec<String> =
                    tests.iter().map(|test| format!("`{}`", test.name)).collect();
                ("with the tests".to_owned(), fault.promises.to_owned(), names.join(", "))
            }
            Coverage::NotCovered(why) => {
                ("none".to_owned(), "not checked".to_owned(), why.to_owned())
            }
        };
        let (id, title, how) = (fault.id, fault.title, fault.how);
        table += &format!("| {id} | {title} | {how} | {ran} | {held} | {seen} |\n");
    }
    table
}

fn described(fault: &Fault, of_it: &[(&Run, &RunResult)]) -> (String, String, String) {
    let mut counts: BTreeMap<StoreKind, usize> = BTreeMap::new();
    for (run, _) in of_it {
        *counts.entry(run.kind).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let failed = of_it.iter().filter(|(_, outcome)| outcome.failure.is_some()).count();
    let held = if failed == 0 {
        fault.promises.to_owned()
    } else {
        format!("**broken in {failed} of {}**", of_it.len())
    };
    // Of the first run of each scenario and store.
    let mut notes = BTreeMap::new();
    for (run, outcome) in of_it {
        notes.entry((run.scenario.name, run.kind)).or_insert(&outcome.notes);
    }
    let seen: Vec<String> = notes
        .iter()
        .map(|((name, kind), notes)| format!("{name}, {kind}: {}", notes.join("; ")))
        .collect();
    (counts.join(", "), held, seen.join("<br>"))
}
