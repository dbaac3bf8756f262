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
        id: "F4",
        title: "a zombie: an engine stops, is given up, and goes on",
        how: "SIGSTOP for three leases, then SIGCONT",
        promises: "I1–I9",
        proof: Proof::Scenarios(&[on(BOTH, "zombie", 20, s::deaths::zombie)]),
    },
    Fault {
        id: "F14",
        title: "PostgreSQL crashes",
        how: "an immediate stop and `kill -9` of the postmaster, under load",
        promises: "I1–I9, I12",
        proof: Proof::Scenarios(&[on(POSTGRES, "crash", 20, s::servers::crash)]),
    },
];
