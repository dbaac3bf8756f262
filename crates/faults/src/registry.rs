//! Every fault that is known: what it is, how it is injected, where, and which
//! promises are checked. Those that other tests inject already name them.
//!
//! The promises: **I1** what was confirmed is there; **I2** a task ends once, and
//! an end never changes; **I3** what was done was seen; **I4** attempts never
//! overlap while the lease of the first is good; **I5** what comes late changes
//! nothing and is kept; **I6** crashes count as tries; **I7** the record of
//! attempts has no gap; **I8** all ends after the fault is healed; **I9** limits
//! hold; **I10** a slot fires once; **I11** others go on; **I12** memory, CPU,
//! connections and log stay bounded.

use std::fmt;

use crate::harness::arena::Arena;
use crate::scenarios as s;

/// A fault.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Fault {
    pub id: &'static str,
    pub title: &'static str,
    pub how: &'static str,
    pub promises: &'static str,
    pub proof: Proof,
}

/// Where it is shown that the fault is survived.
#[derive(Debug, Clone, Copy)]
pub enum Proof {
    /// Here.
    Scenarios(&'static [Scenario]),
    /// By tests of the workspace that were there before.
    Tests(&'static [Test]),
    /// Nowhere, and why.
    Absent(&'static str),
}

/// One way to inject a fault.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Scenario {
    pub name: &'static str,
    pub stores: &'static [Kind],
    /// How often it runs in a soak.
    pub soak_runs: u64,
    pub run: fn(&mut Arena),
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
pub enum Kind {
    Postgres,
    Sqlite,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "postgresql",
            Self::Sqlite => "sqlite",
        })
    }
}

const BOTH: &[Kind] = &[Kind::Postgres, Kind::Sqlite];
const POSTGRES: &[Kind] = &[Kind::Postgres];
#[allow(dead_code)]
const SQLITE: &[Kind] = &[Kind::Sqlite];

const fn on(
    stores: &'static [Kind],
    name: &'static str,
    soak_runs: u64,
    run: fn(&mut Arena),
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
        proof: Proof::Scenarios(&[on(BOTH, "kill_storm", 200, s::deaths::kill_storm)]),
    },
    Fault {
        id: "F3",
        title: "an engine dies between its claim and the start of the tasks",
        how: "a proxy keeps the answer of the claim, then `kill -9`",
        promises: "I1–I9",
        proof: Proof::Scenarios(&[on(
            POSTGRES,
            "claim_without_answer",
            10,
            s::network::claim_without_answer,
        )]),
    },
    Fault {
        id: "F4",
        title: "a zombie: an engine stops, is given up, and goes on",
        how: "SIGSTOP for three leases, then SIGCONT",
        promises: "I1–I9",
        proof: Proof::Scenarios(&[on(BOTH, "zombie", 20, s::deaths::zombie)]),
    },
    Fault {
        id: "F10",
        title: "the connection that listens is killed",
        how: "`pg_terminate_backend` of the listener",
        promises: "I8: picked up long before the poll",
        proof: Proof::Scenarios(&[on(
            POSTGRES,
            "listener_killed",
            10,
            s::network::listener_killed,
        )]),
    },
    Fault {
        id: "F11",
        title: "half-open network",
        how: "a network namespace whose wire is pulled out: packets are lost, no end arrives",
        promises: "I1–I9, I12",
        proof: Proof::Scenarios(&[on(POSTGRES, "half_open", 5, s::network::half_open)]),
    },
    Fault {
        id: "F12",
        title: "slow, lossy, stalled and cut connections",
        how: "a TCP proxy: delay, trickle, stall, answers held back, reset, cut after N bytes, old connections led nowhere",
        promises: "I1–I9, I12",
        proof: Proof::Scenarios(&[
            on(POSTGRES, "bad_line", 20, s::network::bad_line),
            on(POSTGRES, "dead_connections", 3, s::network::dead_connections),
        ]),
    },
    Fault {
        id: "F13",
        title: "all backends are killed",
        how: "`pg_terminate_backend` of every connection of engines and producers, again and again",
        promises: "I1–I9, I12",
        proof: Proof::Scenarios(&[on(POSTGRES, "backends_killed", 5, s::network::backends_killed)]),
    },
    Fault {
        id: "F14",
        title: "PostgreSQL crashes",
        how: "an immediate stop and `kill -9` of the postmaster, under load",
        promises: "I1–I9, I12",
        proof: Proof::Scenarios(&[on(POSTGRES, "crash", 20, s::servers::crash)]),
    },
    Fault {
        id: "F15",
        title: "failover to a promoted standby",
        how: "`kill -9` of the primary, `pg_promote()`, the proxy leads to the standby; synchronous, and asynchronous with the standby held behind",
        promises: "I1–I9 (asynchronous: what PostgreSQL has kept is sound, the rest is counted)",
        proof: Proof::Scenarios(&[
            on(POSTGRES, "failover_sync", 10, s::servers::failover_sync),
            on(POSTGRES, "failover_async", 10, s::servers::failover_async),
        ]),
    },
    Fault {
        id: "F16",
        title: "a server that takes no writes",
        how: "`default_transaction_read_only = on`, later off",
        promises: "I1–I9, I12",
        proof: Proof::Scenarios(&[on(POSTGRES, "read_only", 5, s::servers::read_only)]),
    },
    Fault {
        id: "F18",
        title: "no connections left",
        how: "12 engines at once on `max_connections = 30`",
        promises: "I1–I9",
        proof: Proof::Scenarios(&[on(
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
        proof: Proof::Scenarios(&[on(
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
        proof: Proof::Scenarios(&[on(POSTGRES, "wal_volume_full", 5, s::servers::wal_volume_full)]),
    },
    Fault {
        id: "F24",
        title: "tables are locked against everybody",
        how: "`LOCK TABLE … ACCESS EXCLUSIVE`, one table after the other",
        promises: "I1–I9, I12",
        proof: Proof::Scenarios(&[on(POSTGRES, "locked_tables", 3, s::servers::locked_tables)]),
    },
];
