//! Every known fault: how it is injected, on which stores, and which promises are checked.
//! A fault that is covered elsewhere names the tests.
//!
//! The promises:
//! - **I1** confirmed tasks exist;
//! - **I2** a task ends once, and its end never changes;
//! - **I3** a recorded success was witnessed;
//! - **I4** attempts do not overlap while the lease of the first is valid;
//! - **I5** a late result changes nothing and is kept;
//! - **I6** crashes count as attempts;
//! - **I7** attempt numbers have no gap;
//! - **I8** all tasks end after the fault is healed;
//! - **I9** no engine runs more tasks at a time than it has workers, and no key has two
//!   open tasks;
//! - **I10** a slot fires once;
//! - **I11** other tasks end in the meantime;
//! - **I12** memory, CPU, connections and log stay bounded;
//! - **I13** a recorded step returns the same value in every attempt, and its code does not
//!   run again;
//! - **I14** a durable task receives the signal that was accepted, and no other;
//! - **I15** a sleep does not end early, and it ends;
//! - **I16** children are created once, and their parent continues after all of them, with
//!   their results;
//! - **I17** no key of a limit has more running attempts in live engines than the limit
//!   allows;
//! - **I18** no key has more starts in any window than its rate allows;
//! - **I19** the tasks of a key in order run one at a time, in order;
//! - **I20** a task of a flow starts or is cancelled as follows from the ends of those that it
//!   depends on, and not before them;
//! - **I21** a task of a flow runs again only after a recorded loss of its attempt, or an
//!   operator's retry.

use std::fmt;

use crate::harness::context::TestContext;
use crate::scenarios as s;

/// A fault.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Fault {
    pub id: &'static str,
    pub title: &'static str,
    pub how: &'static str,
    pub promises: &'static str,
    pub coverage: Coverage,
}

/// Where the fault is tested.
#[derive(Debug, Clone, Copy)]
pub enum Coverage {
    /// Here.
    Scenarios(&'static [Scenario]),
    /// By other tests of the workspace.
    Tests(&'static [Test]),
    /// Not tested, and why.
    NotCovered(&'static str),
}

/// One way to inject a fault.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Scenario {
    pub name: &'static str,
    pub stores: &'static [StoreKind],
    /// How often it runs in a soak.
    pub soak_runs: u64,
    pub run: fn(&mut TestContext),
}

/// A test elsewhere in the workspace.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Test {
    pub file: &'static str,
    pub name: &'static str,
}

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum StoreKind {
    Postgres,
    Sqlite,
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "postgresql",
            Self::Sqlite => "sqlite",
        })
    }
}

const BOTH: &[StoreKind] = &[StoreKind::Postgres, StoreKind::Sqlite];
const POSTGRES: &[StoreKind] = &[StoreKind::Postgres];
const SQLITE: &[StoreKind] = &[StoreKind::Sqlite];

const fn on(
    stores: &'static [StoreKind],
    name: &'static str,
    soak_runs: u64,
    run: fn(&mut TestContext),
) -> Scenario {
    Scenario { name, stores, soak_runs, run }
}

/// All of them, by number.
pub const FAULTS: &[Fault] = &[
    Fault {
        id: "F1",
        title: "an engine dies in the middle of its tasks",
        how: "`kill -9` of random engines and of the producer, under load",
        promises: "I1–I9",
        coverage: Coverage::Scenarios(&[on(BOTH, "kill_storm", 200, s::deaths::kill_storm)]),
    },
    Fault {
        id: "F2",
        title: "an engine dies after the work, before it is recorded",
        how: "the task ends its process when its work is done",
        promises: "I1–I9; both attempts are recorded",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "dies_before_the_record",
            10,
            s::poison::dies_before_the_record,
        )]),
    },
    Fault {
        id: "F3",
        title: "an engine dies between its claim and the start of the tasks",
        how: "a proxy holds back the reply to the claim, then `kill -9`",
        promises: "I1–I9",
        coverage: Coverage::Scenarios(&[on(
            POSTGRES,
            "claim_without_answer",
            10,
            s::network::claim_without_answer,
        )]),
    },
    Fault {
        id: "F4",
        title: "a zombie: an engine stops, is declared lost, and continues",
        how: "SIGSTOP for three leases, then SIGCONT",
        promises: "I1–I9",
        coverage: Coverage::Scenarios(&[on(BOTH, "zombie", 20, s::deaths::zombie)]),
    },
    Fault {
        id: "F5",
        title: "a whole machine freezes",
        how: "freezer cgroup over two engines, thawed after their leases",
        promises: "I1–I9; a new session with a new id",
        coverage: Coverage::Scenarios(&[on(POSTGRES, "freeze", 5, s::clocks::freeze)]),
    },
    Fault {
        id: "F6",
        title: "monotonic clocks that differ",
        how: "an engine in a time namespace, ten days ahead; a jump while it runs cannot be injected without suspending the machine (F4 and F5 look the same from outside)",
        promises: "I1–I9",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "other_boot_time",
            3,
            s::clocks::other_boot_time,
        )]),
    },
    Fault {
        id: "F7",
        title: "wall clocks of engines are wrong by an hour",
        how: "libfaketime on engines, one fast, one slow, with a schedule",
        promises: "I1–I10; no task runs early, no engine is declared lost",
        coverage: Coverage::Scenarios(&[on(
            POSTGRES,
            "skewed_engines",
            3,
            s::clocks::skewed_engines,
        )]),
    },
    Fault {
        id: "F8",
        title: "the clock of the database steps",
        how: "libfaketime on the server (SQLite: on the engines): +120 s, −300 s, +130 s",
        promises: "I1–I10",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "database_clock_steps",
            3,
            s::clocks::database_clock_steps,
        )]),
    },
    Fault {
        id: "F9",
        title: "clock changes and leap days in schedules",
        how: "a table of every kind of change, and random expressions against a model of cron",
        promises: "I10",
        coverage: Coverage::Tests(&[
            Test { file: "crates/core/tests/clock_changes.rs", name: "slots_around_clock_changes" },
            Test { file: "crates/core/tests/against_cron.rs", name: "slots_equal_those_of_cron" },
        ]),
    },
    Fault {
        id: "F10",
        title: "the connection that listens is killed",
        how: "`pg_terminate_backend` of the listener",
        promises: "I8: picked up long before the poll",
        coverage: Coverage::Scenarios(&[on(
            POSTGRES,
            "listener_killed",
            10,
            s::network::listener_killed,
        )]),
    },
    Fault {
        id: "F11",
        title: "half-open network",
        how: "a network namespace whose link is taken down: packets are lost, no end of stream arrives",
        promises: "I1–I9, I12",
        coverage: Coverage::Scenarios(&[on(POSTGRES, "half_open", 5, s::network::half_open)]),
    },
    Fault {
        id: "F12",
        title: "slow, lossy, stalled and cut connections",
        how: "a TCP proxy: delay, trickle, stall, replies held back, reset, cut after N bytes, old connections that forward nothing",
        promises: "I1–I9, I12",
        coverage: Coverage::Scenarios(&[
            on(POSTGRES, "bad_line", 20, s::network::bad_line),
            on(POSTGRES, "dead_connections", 3, s::network::dead_connections),
        ]),
    },
    Fault {
        id: "F13",
        title: "all backends are killed",
        how: "`pg_terminate_backend` of every connection of engines and producers, repeatedly",
        promises: "I1–I9, I12",
        coverage: Coverage::Scenarios(&[on(
            POSTGRES,
            "backends_killed",
            5,
            s::network::backends_killed,
        )]),
    },
    Fault {
        id: "F14",
        title: "PostgreSQL crashes",
        how: "an immediate stop and `kill -9` of the postmaster, under load",
        promises: "I1–I9, I12",
        coverage: Coverage::Scenarios(&[on(POSTGRES, "crash", 20, s::servers::crash)]),
    },
    Fault {
        id: "F15",
        title: "failover to a promoted standby",
        how: "`kill -9` of the primary, `pg_promote()`, the proxy forwards to the standby; synchronous, and asynchronous with the standby held behind. Without a proxy, with both servers in the URL: the primary killed, or suspended",
        promises: "I1–I9 (asynchronous: the tasks that PostgreSQL kept are sound, lost ones are counted)",
        coverage: Coverage::Scenarios(&[
            on(POSTGRES, "failover_sync", 10, s::servers::failover_sync),
            on(POSTGRES, "failover_async", 10, s::servers::failover_async),
            on(POSTGRES, "failover_hosts_killed", 5, s::servers::failover_hosts_killed),
            on(POSTGRES, "failover_hosts_frozen", 5, s::servers::failover_hosts_frozen),
        ]),
    },
    Fault {
        id: "F16",
        title: "a read-only server",
        how: "`default_transaction_read_only = on`, later off",
        promises: "I1–I9, I12",
        coverage: Coverage::Scenarios(&[on(POSTGRES, "read_only", 5, s::servers::read_only)]),
    },
    Fault {
        id: "F17",
        title: "a pooler in between",
        how: "pgbouncer 1.18 in transaction mode with two connections for all, engines are killed meanwhile, and in session mode; all connections use it",
        promises: "I1–I9",
        coverage: Coverage::Scenarios(&[
            on(POSTGRES, "transaction_pooler", 3, s::poolers::transaction_pooler),
            on(POSTGRES, "session_pooler", 3, s::poolers::session_pooler),
        ]),
    },
    Fault {
        id: "F18",
        title: "no connections left",
        how: "12 engines on `max_connections = 30`",
        promises: "I1–I9",
        coverage: Coverage::Scenarios(&[on(
            POSTGRES,
            "no_connections_left",
            5,
            s::servers::no_connections_left,
        )]),
    },
    Fault {
        id: "F19",
        title: "the volume of the data is full",
        how: "a tablespace on a small tmpfs, filled and freed",
        promises: "I1–I9, I12",
        coverage: Coverage::Scenarios(&[on(
            POSTGRES,
            "data_volume_full",
            5,
            s::servers::data_volume_full,
        )]),
    },
    Fault {
        id: "F20",
        title: "the volume of the write-ahead log is full",
        how: "a server on a small tmpfs, filled until it panics, freed, started",
        promises: "I1–I9, I12",
        coverage: Coverage::Scenarios(&[on(
            POSTGRES,
            "wal_volume_full",
            5,
            s::servers::wal_volume_full,
        )]),
    },
    Fault {
        id: "F21",
        title: "an SQLite file system that is full, read-only, or without the file",
        how: "a small tmpfs, filled and freed; remounted read-only and back; the file is moved away and put back",
        promises: "I1–I9, I12; `integrity_check`",
        coverage: Coverage::Scenarios(&[
            on(SQLITE, "file_system_full", 5, s::files::file_system_full),
            on(SQLITE, "file_system_read_only", 5, s::files::file_system_read_only),
            on(SQLITE, "file_gone", 3, s::files::file_gone),
        ]),
    },
    Fault {
        id: "F22",
        title: "torn writes and flipped bits in an SQLite file",
        how: "the log is cut off at random; bits of the file are flipped",
        promises: "with a cut log, the store is sound at an earlier time; damage is reported where SQLite can detect it",
        coverage: Coverage::Scenarios(&[
            on(SQLITE, "torn_log", 5, s::files::torn_log),
            on(SQLITE, "flipped_bit", 3, s::files::flipped_bit),
        ]),
    },
    Fault {
        id: "F23",
        title: "a snapshot that is held for a long time",
        how: "an open transaction in REPEATABLE READ under load",
        promises: "I1–I9; the rate does not drop; `doctor` names the session (`doctor_finds_forgotten_transaction`)",
        coverage: Coverage::Scenarios(&[on(
            POSTGRES,
            "held_snapshot",
            3,
            s::operators::held_snapshot,
        )]),
    },
    Fault {
        id: "F24",
        title: "tables are locked exclusively",
        how: "`LOCK TABLE … ACCESS EXCLUSIVE`, one table after the other",
        promises: "I1–I9, I12",
        coverage: Coverage::Scenarios(&[on(
            POSTGRES,
            "locked_tables",
            3,
            s::servers::locked_tables,
        )]),
    },
    Fault {
        id: "F25",
        title: "migration under load, engines of two versions",
        how: "the tables get columns, a table and the version number of a later version; the first migration dies half way; engines of this version are killed and restarted",
        promises: "I1–I9",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "tables_of_a_later_version",
            10,
            s::versions::tables_of_a_later_version,
        )]),
    },
    Fault {
        id: "F26",
        title: "unknown classes and unreadable parameters",
        how: "tasks of another class; parameters that do not fit",
        promises: "tasks of unknown classes stay; unreadable parameters are a failure that names the field",
        coverage: Coverage::Tests(&[
            Test {
                file: "tests/conformance/src/claims.rs",
                name: "claim_respects_classes_and_queues",
            },
            Test {
                file: "crates/engine/tests/promises/runs_tasks.rs",
                name: "engine_claims_known_classes_only",
            },
            Test {
                file: "crates/engine/tests/promises/fails_and_retries.rs",
                name: "undecodable_parameters_name_field",
            },
        ]),
    },
    Fault {
        id: "F27",
        title: "a task that uses all memory",
        how: "a memory cgroup of 100 MiB: the kernel kills the engine",
        promises: "I1–I9, I11; failed after a bounded number of crashes, with evidence",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "eats_all_memory",
            3,
            s::poison::eats_all_memory,
        )]),
    },
    Fault {
        id: "F28",
        title: "tasks that end their engine",
        how: "`abort()`, `exit(0)`, a stack overflow",
        promises: "I1–I9, I11; failed after a bounded number of crashes, with evidence",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "kills_its_engine",
            5,
            s::poison::kills_its_engine,
        )]),
    },
    Fault {
        id: "F29",
        title: "panics",
        how: "hundreds of panics, also while values are dropped",
        promises: "I1–I9, I11; no engine ends",
        coverage: Coverage::Scenarios(&[on(BOTH, "panics", 3, s::poison::panics)]),
    },
    Fault {
        id: "F30",
        title: "tasks that block every thread",
        how: "twice as many as cores, sleeping and busy",
        promises: "I1–I9; heartbeats on time",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "blocks_every_thread",
            3,
            s::poison::blocks_every_thread,
        )]),
    },
    Fault {
        id: "F31",
        title: "tasks that ignore a stop, and leave processes",
        how: "executables that ignore SIGTERM and start others",
        promises: "the whole process group is killed",
        coverage: Coverage::Tests(&[
            Test {
                file: "crates/cli/tests/cli/executables.rs",
                name: "timeout_kills_whole_process_tree",
            },
            Test {
                file: "crates/cli/tests/cli/executables.rs",
                name: "started_processes_end_with_attempt",
            },
        ]),
    },
    Fault {
        id: "F32",
        title: "stop signals: one, two, as process 1",
        how: "real signals to the program",
        promises: "tasks finish, or are released without using a retry",
        coverage: Coverage::Tests(&[
            Test {
                file: "crates/cli/tests/cli/stop_signals.rs",
                name: "first_signal_lets_tasks_finish",
            },
            Test {
                file: "crates/cli/tests/cli/stop_signals.rs",
                name: "second_signal_releases_tasks",
            },
            Test {
                file: "crates/cli/tests/cli/process_one.rs",
                name: "process_one_stops_on_sigterm",
            },
        ]),
    },
    Fault {
        id: "F33",
        title: "hostile payloads",
        how: "NUL, lone surrogates, long numbers, depth, size",
        promises: "refused with a reason, or read back unchanged",
        coverage: Coverage::Tests(&[
            Test { file: "tests/conformance/src/hostile.rs", name: "json_round_trips_unchanged" },
            Test {
                file: "tests/conformance/src/hostile.rs",
                name: "long_numbers_keep_every_digit",
            },
            Test { file: "tests/conformance/src/hostile.rs", name: "results_of_every_kind" },
        ]),
    },
    Fault {
        id: "F34",
        title: "very many tasks fail at once",
        how: "3000 (soak: 100 000) tasks that fail, with jitter",
        promises: "I1–I9, I12; retries are spread",
        coverage: Coverage::Scenarios(&[on(BOTH, "retry_storm", 1, s::poison::retry_storm)]),
    },
    Fault {
        id: "F35",
        title: "many engines with one schedule",
        how: "five engines; one after the other is stopped for a while",
        promises: "I1–I10",
        coverage: Coverage::Scenarios(&[on(
            POSTGRES,
            "many_schedulers",
            5,
            s::clocks::many_schedulers,
        )]),
    },
    Fault {
        id: "F36",
        title: "dropped callers",
        how: "every kind of call dropped after a random time",
        promises: "I1–I9; no connection stays in a transaction",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "callers_give_up",
            3,
            s::operators::callers_give_up,
        )]),
    },
    Fault {
        id: "F37",
        title: "ids beyond 2³¹ and 2⁵³",
        how: "sequences that begin there",
        promises: "I1–I9; every id exact",
        coverage: Coverage::Scenarios(&[on(BOTH, "large_ids", 1, s::operators::large_ids)]),
    },
    Fault {
        id: "F38",
        title: "a dashboard under load",
        how: "",
        promises: "",
        coverage: Coverage::NotCovered(
            "measured by a program, not by a timed test (`crates/web/examples/visitors.rs`, see performance.md); a test checks that the dashboard reads no history (`activity_reads_no_history`)",
        ),
    },
    Fault {
        id: "F39",
        title: "operators against engines",
        how: "tasks are cancelled and retried at random while they run",
        promises: "I1–I9; the reports of operations are correct",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "operator_races",
            5,
            s::operators::operator_races,
        )]),
    },
    Fault {
        id: "F40",
        title: "a copy is restored while the original runs",
        how: "`pg_dump` and `pg_restore` (SQLite: `VACUUM INTO`) under load, an engine on the copy",
        promises: "I1–I9 in both; tasks that ran when the copy was made run again there",
        coverage: Coverage::Scenarios(&[on(BOTH, "restored_copy", 3, s::operators::restored_copy)]),
    },
    Fault {
        id: "F41",
        title: "engines die, or seem to, in the middle of durable tasks",
        how: "`kill -9` of random engines and of the sender of signals, SIGSTOP beyond the lease; signals come early, late and twice, on PostgreSQL also in transactions that roll back",
        promises: "I1–I9, I13–I16",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "durable_kill_storm",
            100,
            s::durable::durable_kill_storm,
        )]),
    },
    Fault {
        id: "F42",
        title: "an engine dies right after a write of a durable task",
        how: "`kill -9` after each kind of write: step, sleep, wait, suspension, signal, timeout, call, end of the children, resumption of the parent",
        promises: "I1–I9, I13–I16; the code of a recorded step ran once",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "killed_after_each_write",
            20,
            s::durable::killed_after_each_write,
        )]),
    },
    Fault {
        id: "F43",
        title: "engines die, or seem to, while tasks have limits",
        how: "`kill -9` of random engines, SIGSTOP for up to two leases; tasks with a maximum for each key, with a rate, and in order",
        promises: "I1–I9, I17–I19",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "limited_kill_storm",
            100,
            s::limits::limited_kill_storm,
        )]),
    },
    Fault {
        id: "F44",
        title: "connections and the server fail while tasks have limits",
        how: "a TCP proxy: delay, stall, replies held back, reset, cut; an immediate stop and `kill -9` of the postmaster",
        promises: "I1–I9, I17–I19",
        coverage: Coverage::Scenarios(&[
            on(POSTGRES, "limited_bad_line", 50, s::limits::limited_bad_line),
            on(POSTGRES, "limited_crash", 20, s::limits::limited_crash),
        ]),
    },
    Fault {
        id: "F45",
        title: "a pooler in between, and clocks of engines that step, while tasks have limits",
        how: "pgbouncer in transaction mode with two connections for all, an engine is killed; libfaketime on one of two engines: +120 s, −300 s, +1 h",
        promises: "I1–I9, I17–I19",
        coverage: Coverage::Scenarios(&[
            on(POSTGRES, "limited_pooler", 5, s::limits::limited_pooler),
            on(POSTGRES, "limited_clock_steps", 5, s::limits::limited_clock_steps),
        ]),
    },
    Fault {
        id: "F46",
        title: "engines die between the end of a task and the start of those that depend on it",
        how: "`kill -9` within milliseconds of an end, on PostgreSQL also while the rows of blocked tasks are locked; random flows of 30 tasks with all conditions and random failures, then a retry of what failed",
        promises: "I1–I9, I20, I21",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "flow_kill_storm",
            100,
            s::flows::flow_kill_storm,
        )]),
    },
    Fault {
        id: "F47",
        title: "the clock of the database is set back while tasks have limits",
        how: "libfaketime on the server (SQLite: on the engines): +420 s, then back to +300 s and 0, each when the keys of a rate are in use",
        promises: "I1–I9, I17–I19; no key waits for the time before",
        coverage: Coverage::Scenarios(&[on(
            BOTH,
            "limited_clock_set_back",
            5,
            s::limits::limited_clock_set_back,
        )]),
    },
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn fault_ids_are_complete_and_ordered() {
        let ids: Vec<String> = FAULTS.iter().map(|fault| fault.id.to_owned()).collect();
        let expected: Vec<String> = (1..=47).map(|number| format!("F{number}")).collect();
        assert_eq!(ids, expected);
    }

    #[test]
    fn page_lists_every_fault() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = std::fs::read_to_string(root.join("docs/faults.md")).expect("the page");
        for Fault { id, title, how, .. } in FAULTS {
            let row = format!("| {id} | {title} | {how} |");
            assert!(page.contains(&row), "docs/faults.md lacks the row {row:?}");
        }
    }

    #[test]
    fn named_tests_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for fault in FAULTS {
            let Coverage::Tests(tests) = fault.coverage else {
                continue;
            };
            for Test { file, name } in tests {
                let text = std::fs::read_to_string(root.join(file));
                let text = text.unwrap_or_else(|error| panic!("{}: {file}: {error}", fault.id));
                assert!(text.contains(&format!("fn {name}(")), "{}: no {name} in {file}", fault.id);
            }
        }
    }
}
