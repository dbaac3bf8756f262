//! The words of Task Engine as types, its decisions as pure functions, and the
//! contract that every store keeps.
//!
//! **For applications this is not the crate to add**: [`task-engine`] has all of
//! it that an application needs in its root, and the rest as
//! `task_engine::model`. This one is for those who write a store (implement
//! [`Store`]), or a tool that looks at one. Nothing here knows a database driver,
//! and nothing here runs a task.
//!
//! Examples at what applications use too are written as an application would
//! write them, with `task_engine` in place of `task_engine_model`.
//!
//! [`task-engine`]: https://docs.rs/task-engine
//!
//! # Map
//! What applications say:
//! - [`task`]: what is asked for, and what is known about it;
//! - [`client`]: how tasks are created;
//! - [`unique`]: what happens when a task is created twice;
//! - [`schedule`]: regular tasks, and when they run;
//! - [`retry`]: when a failed attempt is tried again;
//! - [`hook`]: what an application wants of every task that it creates;
//! - [`secret`]: parameters that are not shown;
//! - [`json`]: JSON text that every store accepts.
//!
//! What stores and engines say to each other:
//! - [`store`]: the contract;
//! - [`attempt`]: what can happen to an attempt, and what comes next;
//! - [`completion`]: an end in a transaction of the application's own;
//! - [`recovery`]: what becomes of attempts whose engine is gone;
//! - [`instance`]: engines as the database sees them, and who may use a name;
//! - [`lock`]: sessions whose locks hold up the work;
//! - [`queue`]: who serves queues, what waits in them, and which are paused;
//! - [`report`]: what an attempt says while it runs;
//! - [`cancel`]: what became of a wish to cancel it;
//! - [`flow`], [`traceparent`]: which tasks belong together, and who created whom.
//!
//! What people ask, and change:
//! - [`filter`], [`search`]: which tasks somebody means, and how they are found;
//! - [`errors`]: what fails, and how often;
//! - [`watch`], [`why`]: what goes on, and why a task does not run;
//! - [`check`]: whether all is well, and what to do about it;
//! - [`figures`]: what engines have counted, for charts;
//! - [`change`]: what an operator may change about a task;
//! - [`audit`], [`token`], [`login`]: what operators did, and how they prove who
//!   they are;
//! - [`export`]: all that a store knows, as lines of JSON.

pub mod attempt;
pub mod audit;
pub mod cancel;
pub mod change;
pub mod check;
pub mod client;
pub mod completion;
pub mod errors;
pub mod export;
pub mod figures;
pub mod filter;
pub mod flow;
mod folding;
pub mod hook;
pub mod instance;
pub mod json;
pub mod lock;
pub mod login;
// For engines, stores and tools on one machine.
#[doc(hidden)]
pub mod process;
pub mod queue;
pub mod recovery;
pub mod report;
pub mod retry;
pub mod schedule;
pub mod search;
pub mod secret;
pub mod store;
pub mod task;
pub mod token;
pub mod traceparent;
// The command line and the dashboard speak alike; how is not a promise.
#[doc(hidden)]
pub mod typed;
pub mod unique;
pub mod watch;
pub mod why;
mod word;
#[doc(hidden)]
pub mod words;

pub use attempt::{AttemptId, Ending, Next, Outcome, TaskError, transition};
pub use audit::{AuditEntry, AuditFilter, AuditOutcome, NewAuditEntry};
pub use change::{Edit, EditReport, RemoveReport};
pub use client::Client;
pub use completion::{Completion, Settled};
pub use figures::{FigureRow, FiguresLook};
pub use filter::{BadFilter, Filter, FoundTask};
pub use flow::{FlowPage, FlowTask, Origin};
pub use hook::{CreationHook, Refusal};
pub use instance::{InstanceId, InstanceRow, InstanceSummary, NewInstance};
pub use json::{BadJson, Json};
pub use queue::{Lanes, Pause, PausedQueue, Pool, QueueRow};
pub use retry::{RetryOverride, RetryRule};
pub use schedule::{Missed, Overlap, Schedule};
pub use search::{Base, Found, Scan, Scanned, Search};
pub use store::{Answer, Claim, ClaimId, ClaimedTask, Claimer, Rest, Store, StoreError, WakeUp};
pub use task::{
    ClassRules, ExecutionRow, NewTask, Task, TaskDetails, TaskFilter, TaskId, TaskRow, TaskStatus,
};
pub use token::{NewToken, Role, TokenRow};
pub use traceparent::Traceparent;
pub use unique::{Creation, OnConflict, Scope, Unique};
pub use word::BadWord;
