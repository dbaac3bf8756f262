//! The words of Task Engine as types, its decisions as pure functions, and the
//! contract that every store keeps.
//!
//! An application that only *creates* tasks needs this crate and one store:
//! describe what is stored with [`Task`], then create it through a [`Client`].
//! Nothing here knows a database driver, and nothing here runs a task.
//!
//! # Map
//! - [`task`]: what was asked for, and what is known about it;
//! - [`json`]: JSON text that every store accepts;
//! - [`retry`]: when a failed attempt is tried again;
//! - [`attempt`]: what can happen to an attempt, and what comes next;
//! - [`recovery`]: what becomes of attempts whose engine is gone;
//! - [`instance`]: engines as the database sees them, and who may use a name;
//! - [`queue`]: who serves queues, what waits in them, and which are paused;
//! - [`schedule`]: regular tasks, and when they run;
//! - [`store`]: the contract;
//! - [`client`]: creation for applications;
//! - [`filter`], [`search`]: which tasks somebody means, and how they are found;
//! - [`folding`], [`errors`]: what is the same in two messages, and what fails;
//! - [`change`]: what an operator may change about a task;
//! - [`hook`]: what an application wants of every task that it creates;
//! - [`unique`]: what happens when a task is created twice;
//! - [`flow`], [`traceparent`]: which tasks belong together, and who created whom;
//! - [`report`]: what an attempt says while it runs;
//! - [`cancel`]: what became of a wish to cancel it;
//! - [`watch`], [`why`]: what goes on, and why a task does not run;
//! - [`words`]: all of that in words for people;
//! - [`check`]: whether all is well, and what to do about it;
//! - [`figures`]: what engines have counted, for charts;
//! - [`audit`], [`token`]: what operators did, and how they prove who they are;
//! - [`export`]: all that a store knows, as lines of JSON.

pub mod attempt;
pub mod audit;
pub mod cancel;
pub mod change;
pub mod check;
pub mod client;
pub mod errors;
pub mod export;
pub mod figures;
pub mod filter;
pub mod flow;
pub mod folding;
pub mod hook;
pub mod instance;
pub mod json;
pub mod queue;
pub mod recovery;
pub mod report;
pub mod retry;
pub mod schedule;
pub mod search;
pub mod store;
pub mod task;
pub mod token;
pub mod traceparent;
pub mod unique;
pub mod watch;
pub mod why;
pub mod words;

pub use attempt::{AttemptId, Ending, Next, Outcome, TaskError, transition};
pub use audit::{AuditEntry, AuditOutcome, NewAuditEntry};
pub use change::{Edit, EditReport, RemoveReport};
pub use client::Client;
pub use figures::{FigureRow, FiguresLook};
pub use filter::{BadFilter, Filter, FoundTask};
pub use flow::{FlowPage, FlowTask, Origin};
pub use hook::{CreationHook, Refusal};
pub use instance::{InstanceId, InstanceRow, NewInstance};
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
