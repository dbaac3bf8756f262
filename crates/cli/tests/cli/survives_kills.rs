//! Engines are killed at random, again and again; every task ends all the same,
//! and no attempt overlaps another while its engine was alive. Checked against
//! a witness outside the database.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine::{Store, TaskStatus};
use task_engine_conformance::TestServer;

use super::support::{Place, Running};

const TASKS: usize = 20_000;
/// A generous limit: tasks that have not ended by then are lost.
const TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn on_postgresql_with_four_engines() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    let place = Place::with_database(&url);
    let store = || Arc::new(runtime.block_on(PgStore::connect(&url)).unwrap());
    kill_at_random(&place, 4, |check| runtime.block_on(check(store())));
}

#[test]
fn on_sqlite_with_two_engines() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let place = Place::new();
    let store = || Arc::new(SqliteStore::open(place.path("task-engine.db")).unwrap());
    kill_at_random(&place, 2, |check| runtime.block_on(check(store())));
}

type Check<'a> = dyn Fn(Arc<dyn Store>) -> std::pin::Pin<Box<dyn Future<Output = bool>>> + 'a;

fn kill_at_random(place: &Place, engines: usize, ask: impl Fn(&Check<'_>) -> bool) {
    let count = TASKS.to_string();
    place.ok(&["create", "WitnessTask", r#"{"ms": 2}"#, "--count", &count]);
    let start = |n: usize| {
        let name = format!("engine-{n}");
        let settings = ["--recovery", "auto", "--heartbeat", "200ms", "--dead-after", "1s"];
        let args =
            [&["start", "--quiet", "--instance", &name, "--witness", "witness"], &settings[..]];
        place.start(&args.concat())
    };
    let mut running: Vec<Running> = (0..engines).map(start).collect();
    let mut killed: HashMap<u32, i64> = HashMap::new();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let begun = Instant::now();
    while !ask(&|store| Box::pin(async move { nothing_open(&*store).await })) {
        assert!(begun.elapsed() < TIMEOUT, "tasks are still open");
        std::thread::sleep(Duration::from_millis(chance.u64(50..400)));
        let victim = chance.usize(0..engines);
        // It runs for some time from here on; this is the least.
        killed.insert(running[victim].id(), Timestamp::now().as_microsecond());
        running[victim].signal("KILL");
        let next = start(victim);
        std::mem::replace(&mut running[victim], next).end();
    }
    for engine in running {
        // The last one may be so new that it cannot be told to stop yet.
        let process = i32::try_from(engine.id()).unwrap();
        while !ask(&|store| Box::pin(async move { is_at_work(&*store, process).await })) {
            assert!(begun.elapsed() < TIMEOUT, "an engine does not start");
        }
        engine.signal("TERM");
        let ended = engine.end();
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }
    println!("{} engines killed in {:.1} s", killed.len(), begun.elapsed().as_secs_f64());
    assert!(!killed.is_empty(), "the test is too short to kill anybody");
    let sound = ask(&|store| {
        Box::pin(async move {
            assert_eq!(store.verify().await.unwrap(), Vec::<String>::new());
            all_stopped(&*store).await
        })
    });
    assert!(sound, "every task ends stopped");
    check_witness(&fs::read_to_string(place.path("witness")).unwrap(), &killed);
}

/// In one look: a task that is claimed between two would be in neither.
async fn nothing_open(store: &dyn Store) -> bool {
    let there = store.inventory().await.unwrap();
    there.waiting + there.running == 0
}

async fn is_at_work(store: &dyn Store, process: i32) -> bool {
    let engines = store.instances(None).await.unwrap();
    engines.iter().any(|engine| engine.pid == process && engine.is_alive())
}

async fn all_stopped(store: &dyn Store) -> bool {
    let limit = u32::try_from(TASKS).unwrap() + 1;
    let filter = task_engine_core::task::TaskFilter { limit, ..Default::default() };
    let rows = store.tasks(&filter).await.unwrap().into_iter();
    let all: Vec<_> = rows.map(|row| row.status).collect();
    all.len() == TASKS && all.iter().all(|status| *status == TaskStatus::Stopped)
}

/// The lines of one attempt in the witness file.
#[derive(Default)]
struct Attempt {
    process: u32,
    began: i64,
    ended: Option<i64>,
}

fn check_witness(text: &str, killed: &HashMap<u32, i64>) {
    let mut tasks: BTreeMap<i64, BTreeMap<i32, Attempt>> = BTreeMap::new();
    for line in text.lines() {
        let [word, task, attempt, process, time] =
            line.split(' ').collect::<Vec<_>>().try_into().expect("five words a line");
        let attempts = tasks.entry(task.parse().unwrap()).or_default();
        let attempt = attempts.entry(attempt.parse().unwrap()).or_default();
        let time = time.parse().unwrap();
        match word {
            "begin" => {
                assert_eq!(attempt.began, 0, "begun twice: {line}");
                (attempt.process, attempt.began) = (process.parse().unwrap(), time);
            }
            _ => attempt.ended = Some(time),
        }
    }
    assert_eq!(tasks.len(), TASKS, "each task began at least once");
    let mut repeated = 0;
    for (task, attempts) in &tasks {
        let attempts: Vec<_> = attempts.iter().collect();
        repeated += attempts.len() - 1;
        for pair in attempts.windows(2) {
            let [(number, first), (next, second)] = pair else { unreachable!() };
            // An attempt without an end was killed, and ran until then.
            let over = first.ended.or_else(|| killed.get(&first.process).copied());
            let over = over.unwrap_or_else(|| panic!("task {task}: attempt {number} has no end"));
            assert!(
                second.began >= over,
                "task {task}: attempt {next} began {} µs before attempt {number} was over",
                over - second.began
            );
        }
    }
    println!("{repeated} attempts were repeated");
}
