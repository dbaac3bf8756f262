//! What becomes of an SQLite file: full, read-only, deleted, damaged.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use crate::harness::arena::Arena;
use crate::harness::machine::Volume;
use crate::history::History;
use crate::orders::Duty;

fn integrity(file: &Path) -> String {
    let open = Connection::open(file);
    let told = open.and_then(|db| db.query_row("PRAGMA integrity_check", [], |row| row.get(0)));
    told.unwrap_or_else(|error| error.to_string())
}

/// On a volume of its own.
fn on_volume(arena: &mut Arena, mib: u32) -> Volume {
    let volume = Volume::mount(arena.path("volume"), mib);
    let file = volume.path().join("tasks.db").display().to_string();
    arena.database.clone_from(&file);
    arena.direct = file;
    arena.on_usual_store();
    volume
}

/// F21: the volume of the file is full; later there is room again.
pub fn file_system_full(arena: &mut Arena) {
    let volume = on_volume(arena, 24);
    arena.start(&["a", "b"]);
    arena.produce(2000, 50, 10, Duty::work(1));
    arena.until("work goes on", || arena.done() > 50);
    let ballast = volume.fill();
    let window = arena.window();
    arena.until("the producer is told", || {
        arena.fleet.logged("producer").contains("make room on its disk")
            || arena.fleet.logged("producer").contains("check its disk")
    });
    arena.endure(Duration::from_secs(3));
    let used = window.close();
    assert!(used.cpu < 0.5, "it spins: {used}");
    std::fs::remove_file(ballast).expect("room");
    arena.note(format!("{used}"));
    arena.account();
    assert_eq!(integrity(&volume.path().join("tasks.db")), "ok");
}

/// F21: the volume becomes read-only; later it can be written again.
pub fn file_system_read_only(arena: &mut Arena) {
    let volume = on_volume(arena, 64);
    arena.start(&["a"]);
    arena.create_many(100, &Duty::work(20));
    arena.until("work goes on", || arena.done() > 10);
    // A volume with files that are written to cannot be made so: the engine is
    // killed, and starts on what it cannot write to.
    arena.fleet.kill("a");
    arena.until("the volume is read-only", || {
        std::process::Command::new("mount")
            .args(["-o", "remount,ro", &volume.path().display().to_string()])
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    let before = arena.fleet.logged("a").len();
    arena.until("the engine says why", || {
        let log = arena.fleet.logged("a");
        let said = &log[before.min(log.len())..];
        said.contains("read-only") || said.contains("cannot be read or written")
    });
    volume.remount("rw");
    arena.account();
    assert_eq!(integrity(&volume.path().join("tasks.db")), "ok");
}

/// F21: somebody moves the file away under a running engine and its producer.
/// Nothing is confirmed that nobody could find; when it is back, all goes on.
pub fn file_gone(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a"]);
    arena.produce(300, 5, 10, Duty::work(5));
    arena.until("work goes on", || arena.done() > 20);
    let (file, away) = (arena.direct.clone(), format!("{}.away", arena.direct));
    std::fs::rename(&file, &away).expect("moved away");
    arena.until("the producer is told", || {
        arena.fleet.logged("producer").contains("deleted, moved or replaced")
    });
    arena.until("the engine is told", || {
        arena.fleet.logged("a").contains("deleted, moved or replaced")
    });
    let before = arena.confirmed();
    arena.endure(Duration::from_secs(1));
    assert_eq!(arena.confirmed(), before, "nothing is confirmed meanwhile");
    std::fs::rename(&away, &file).expect("put back");
    arena.account();
    assert_eq!(integrity(Path::new(&arena.direct)), "ok");
}

/// F22: the write-ahead log is cut off anywhere, as by a loss of power: what is
/// left is a sound store, of some moment.
pub fn torn_log(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a"]);
    arena.produce(300, 5, 1, Duty::work(1));
    arena.until("work goes on", || arena.done() > 60);
    arena.fleet.kill("a");
    arena.kill_producer();
    arena.fleet.forget("a");
    let (file, log) = (arena.direct.clone(), format!("{}-wal", arena.direct));
    let bytes = std::fs::metadata(&log).expect("a log").len();
    assert!(bytes > 0, "something is in it");
    let times = if arena.soak { 200 } else { 25 };
    let mut tasks = Vec::new();
    for _ in 0..times {
        let copy = arena.path("copy.db");
        let copied_log = arena.path("copy.db-wal");
        std::fs::copy(&file, &copy).expect("a copy");
        std::fs::copy(&log, &copied_log).expect("a copy");
        let _ = std::fs::remove_file(arena.path("copy.db-shm"));
        let cut = arena.chance.u64(0..=bytes);
        let torn = std::fs::OpenOptions::new().write(true).open(&copied_log).expect("a log");
        torn.set_len(cut).expect("cut");
        assert_eq!(integrity(&copy), "ok", "cut at {cut} of {bytes}");
        if let Some(count) = sound(arena, &copy) {
            tasks.push(count);
        }
    }
    tasks.sort_unstable();
    arena.note(format!(
        "cut {times} times, every store was sound, with {:?} to {:?} tasks",
        tasks.first(),
        tasks.last()
    ));
    arena.start(&["b"]);
    arena.account();
}

/// How many tasks a copy has, if it has tables at all; it must be sound.
fn sound(arena: &Arena, copy: &Path) -> Option<usize> {
    let store = arena.wait(crate::engine::open(&copy.display().to_string())).expect("it opens");
    match arena.wait(store.verify()) {
        Ok(broken) => assert_eq!(broken, Vec::<String>::new()),
        Err(error) if error.to_string().contains("run `task-engine migrate`") => return None,
        Err(error) => panic!("{error}"),
    }
    let history = arena.wait(History::read(&*store)).expect("a history");
    Some(history.tasks.len())
}

/// F22: a bit flips somewhere in the file. Either the damage is told, or the
/// history is what it was: never another one.
pub fn flipped_bit(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a"]);
    arena.create_many(200, &Duty::work(0));
    arena.account();
    let whole = Connection::open(&arena.direct).expect("opened");
    whole.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("one file");
    drop(whole);
    let before = arena.wait(History::read(&*arena.store())).expect("a history");
    let bytes = std::fs::read(&arena.direct).expect("a file");
    let times = if arena.soak { 500 } else { 60 };
    let (mut told, mut same, mut other) = (0, 0, Vec::new());
    for _ in 0..times {
        let mut damaged = bytes.clone();
        let place = arena.chance.usize(0..bytes.len());
        damaged[place] ^= 1 << arena.chance.u8(0..8);
        let copy = arena.path("flipped.db");
        std::fs::write(&copy, &damaged).expect("a copy");
        for end in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(arena.path(&format!("flipped.db{end}")));
        }
        match read_damaged(arena, &copy) {
            Err(_) => told += 1,
            Ok(history) if history.tasks == before.tasks => same += 1,
            Ok(_) => other.push(place),
        }
    }
    // SQLite has no checksums: a flip inside of a value is a value. It is counted,
    // and said in the documents; what can be told is told.
    arena.note(format!(
        "{times} flips: {told} told, {same} without effect, {} changed a value unseen (SQLite keeps no checksums)",
        other.len()
    ));
    assert!(told > 0, "damage is told where it can be");
    assert!(other.len() * 4 < times, "far too much goes unseen: {other:?}");
}

/// All that can be asked; the first complaint of anything.
fn read_damaged(arena: &Arena, copy: &Path) -> Result<History, String> {
    let told = integrity(copy);
    if told != "ok" {
        return Err(told);
    }
    let store = arena.wait(crate::engine::open(&copy.display().to_string()));
    let store = store.map_err(|error| error.to_string())?;
    let broken = arena.wait(store.verify()).map_err(|error| error.to_string())?;
    if let Some(words) = broken.first() {
        return Err(words.clone());
    }
    arena.wait(History::read(&*store)).map_err(|error| error.to_string())
}
