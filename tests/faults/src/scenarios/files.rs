//! Faults of an SQLite file: full, read-only, deleted, damaged.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use crate::commands::TaskSpec;
use crate::harness::context::TestContext;
use crate::harness::machine::Volume;
use crate::history::History;

fn integrity(file: &Path) -> String {
    let open = Connection::open(file);
    let result = open.and_then(|db| db.query_row("PRAGMA integrity_check", [], |row| row.get(0)));
    result.unwrap_or_else(|error| error.to_string())
}

/// On its own volume.
fn on_volume(ctx: &mut TestContext, mib: u32) -> Volume {
    let volume = Volume::mount(ctx.path("volume"), mib);
    let file = volume.path().join("tasks.db").display().to_string();
    ctx.database.clone_from(&file);
    ctx.direct = file;
    ctx.use_default_store();
    volume
}

/// F21: the volume of the file is full; later there is room again.
pub fn file_system_full(ctx: &mut TestContext) {
    let volume = on_volume(ctx, 24);
    ctx.start(&["a", "b"]);
    ctx.produce(2000, 50, 10, TaskSpec::work(1));
    ctx.wait_until("work goes on", || ctx.finished() > 50);
    let ballast = volume.fill();
    let window = ctx.monitor_usage();
    ctx.wait_until("the producer gets an error", || {
        ctx.engines.logged("producer").contains("make room on its disk")
            || ctx.engines.logged("producer").contains("check its disk")
    });
    ctx.sleep(Duration::from_secs(3));
    let used = window.close();
    assert!(used.cpu < 0.5, "it spins: {used}");
    std::fs::remove_file(ballast).expect("room");
    ctx.note(format!("{used}"));
    ctx.settle_and_check();
    assert_eq!(integrity(&volume.path().join("tasks.db")), "ok");
}

/// F21: the volume becomes read-only; later it can be written again.
pub fn file_system_read_only(ctx: &mut TestContext) {
    let volume = on_volume(ctx, 64);
    ctx.start(&["a"]);
    ctx.create_many(100, &TaskSpec::work(20));
    ctx.wait_until("work goes on", || ctx.finished() > 10);
    // A volume with open files cannot be made read-only. So the engine is killed, and
    // starts on the read-only volume.
    ctx.engines.kill("a");
    ctx.wait_until("the volume is read-only", || {
        std::process::Command::new("mount")
            .args(["-o", "remount,ro", &volume.path().display().to_string()])
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    let before = ctx.engines.logged("a").len();
    ctx.wait_until("the engine says why", || {
        let log = ctx.engines.logged("a");
        let said = &log[before.min(log.len())..];
        said.contains("read-only") || said.contains("cannot be read or written")
    });
    volume.remount("rw");
    ctx.settle_and_check();
    assert_eq!(integrity(&volume.path().join("tasks.db")), "ok");
}

/// F21: the file is moved away while an engine and its producer use it. Nothing is
/// confirmed that is not in the file. When the file is back, both continue.
pub fn file_gone(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a"]);
    ctx.produce(300, 5, 10, TaskSpec::work(5));
    ctx.wait_until("work goes on", || ctx.finished() > 20);
    let (file, away) = (ctx.direct.clone(), format!("{}.away", ctx.direct));
    std::fs::rename(&file, &away).expect("moved away");
    ctx.wait_until("the producer gets an error", || {
        ctx.engines.logged("producer").contains("deleted, moved or replaced")
    });
    ctx.wait_until("the engine gets an error", || {
        ctx.engines.logged("a").contains("deleted, moved or replaced")
    });
    let before = ctx.confirmed();
    ctx.sleep(Duration::from_secs(1));
    assert_eq!(ctx.confirmed(), before, "nothing is confirmed meanwhile");
    std::fs::rename(&away, &file).expect("put back");
    ctx.settle_and_check();
    assert_eq!(integrity(Path::new(&ctx.direct)), "ok");
}

/// F22: the write-ahead log is cut off at a random place, as by a loss of power: the
/// store is sound, at an earlier time.
pub fn torn_log(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a"]);
    ctx.produce(300, 5, 1, TaskSpec::work(1));
    ctx.wait_until("work goes on", || ctx.finished() > 60);
    ctx.engines.kill("a");
    ctx.kill_producer();
    ctx.engines.forget("a");
    let (file, log) = (ctx.direct.clone(), format!("{}-wal", ctx.direct));
    let bytes = std::fs::metadata(&log).expect("a log").len();
    assert!(bytes > 0, "something is in it");
    let times = if ctx.soak { 200 } else { 25 };
    let mut tasks = Vec::new();
    for _ in 0..times {
        let copy = ctx.path("copy.db");
        let copied_log = ctx.path("copy.db-wal");
        std::fs::copy(&file, &copy).expect("a copy");
        std::fs::copy(&log, &copied_log).expect("a copy");
        let _ = std::fs::remove_file(ctx.path("copy.db-shm"));
        let cut = ctx.rng.u64(0..=bytes);
        let torn = std::fs::OpenOptions::new().write(true).open(&copied_log).expect("a log");
        torn.set_len(cut).expect("cut");
        assert_eq!(integrity(&copy), "ok", "cut at {cut} of {bytes}");
        if let Some(count) = sound(ctx, &copy) {
            tasks.push(count);
        }
    }
    tasks.sort_unstable();
    ctx.note(format!(
        "cut {times} times, every store was sound, with {:?} to {:?} tasks",
        tasks.first(),
        tasks.last()
    ));
    ctx.start(&["b"]);
    ctx.settle_and_check();
}

/// How many tasks a copy has, if it has tables at all; it must be sound.
fn sound(ctx: &TestContext, copy: &Path) -> Option<usize> {
    let store = ctx.block_on(crate::engine::open(&copy.display().to_string())).expect("it opens");
    match ctx.block_on(store.verify()) {
        Ok(broken) => assert_eq!(broken, []),
        Err(error) if error.to_string().contains("run `task-engine migrate`") => return None,
        Err(error) => panic!("{error}"),
    }
    let history = ctx.block_on(History::read(&*store)).expect("a history");
    Some(history.tasks.len())
}

/// F22: a bit of the file is flipped. Either the damage is reported, or the history is
/// unchanged.
pub fn flipped_bit(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a"]);
    ctx.create_many(200, &TaskSpec::work(0));
    ctx.settle_and_check();
    let whole = Connection::open(&ctx.direct).expect("opened");
    whole.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("one file");
    drop(whole);
    let before = ctx.block_on(History::read(&*ctx.store())).expect("a history");
    let bytes = std::fs::read(&ctx.direct).expect("a file");
    let times = if ctx.soak { 500 } else { 60 };
    let (mut reported, mut same, mut other) = (0, 0, Vec::new());
    for _ in 0..times {
        let mut damaged = bytes.clone();
        let place = ctx.rng.usize(0..bytes.len());
        damaged[place] ^= 1 << ctx.rng.u8(0..8);
        let copy = ctx.path("flipped.db");
        std::fs::write(&copy, &damaged).expect("a copy");
        for end in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(ctx.path(&format!("flipped.db{end}")));
        }
        match read_damaged(ctx, &copy) {
            Err(_) => reported += 1,
            Ok(history) if history.tasks == before.tasks => same += 1,
            Ok(_) => other.push(place),
        }
    }
    // SQLite has no checksums, so a flip inside of a value is not detected. Such flips
    // are counted, and the documents name them.
    ctx.note(format!(
        "{times} flips: {reported} reported, {same} without effect, {} changed a value unseen (SQLite keeps no checksums)",
        other.len()
    ));
    assert!(reported > 0, "SQLite reports some of the damage");
    assert!(other.len() * 4 < times, "far too much goes unseen: {other:?}");
}

/// Runs all checks and reads. Returns the first error.
fn read_damaged(ctx: &TestContext, copy: &Path) -> Result<History, String> {
    let answer = integrity(copy);
    if answer != "ok" {
        return Err(answer);
    }
    let store = ctx.block_on(crate::engine::open(&copy.display().to_string()));
    let store = store.map_err(|error| error.to_string())?;
    let broken = ctx.block_on(store.verify()).map_err(|error| error.to_string())?;
    if let Some(violation) = broken.first() {
        return Err(violation.to_string());
    }
    ctx.block_on(History::read(&*store)).map_err(|error| error.to_string())
}
