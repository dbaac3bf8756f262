//! The contract between Task Engine and a database, and its row types.
//!
//! **Applications do not add this crate**: [`task-engine`] exports what they need. It is for
//! authors of a store, who implement the traits of which [`Store`] is the union. It depends
//! on no database driver.
//!
//! [`task-engine`]: https://docs.rs/task-engine
//!
//! # Map
//! - [`contract`]: the contract, split by user; [`error`]: errors of stores;
//! - [`claim`]: how an engine takes tasks;
//! - [`rollup`]: per-minute counters of engines;
//! - [`activity`], [`queue_position`], [`scan`], [`lock`]: what readers ask for;
//! - [`schedules`]: schedules as applications and operators change them;
//! - [`audit`], [`token`], [`login`], [`check`], [`export`]: what operators need.

pub mod activity;
pub mod audit;
pub mod check;
pub mod claim;
pub mod contract;
pub mod error;
pub mod export;
pub mod lock;
pub mod login;
pub mod queue_position;
pub mod rollup;
pub mod scan;
pub mod schedules;
#[doc(hidden)]
pub mod sql;
pub mod token;

pub use claim::{Claim, ClaimRest, ClaimedTask, Claimer};
pub use contract::{EngineStore, OperatorStore, ReadStore, Store, StoreBase, StoreFuture};
pub use error::StoreError;
