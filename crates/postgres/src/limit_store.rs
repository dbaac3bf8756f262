//! The contract of limits.

use task_engine_core::limit::{
    ClosedKey, DeclaredLimits, Limit, LimitChange, LimitCleared, LimitId, LimitRow, LimitUsage,
    TaskLimit,
};
use task_engine_core::task::TaskId;
use task_engine_store::contract::{LimitStore, StoreFuture};

use crate::store::{PgStore, STATEMENT, calls};

impl LimitStore for PgStore {
    calls! {
        STATEMENT => fn declare_limits<'a>(
            declared: &'a DeclaredLimits
        ) -> Vec<(String, LimitChange)>;
        STATEMENT => fn set_limit<'a>(limit: &'a Limit) -> LimitChange;
        STATEMENT => fn clear_limit<'a>(name: &'a str) -> LimitCleared;
        STATEMENT => fn close_limit_keys<'a>(keys: &'a [ClosedKey]) -> ();
        STATEMENT => fn open_limit_key<'a>(name: &'a str, key: &'a str) -> bool;
        STATEMENT => fn wake_limited<'a>() -> ();
        STATEMENT => fn prune_limit_keys<'a>(limit: u32) -> u64;
        STATEMENT => fn limits<'a>() -> Vec<LimitRow>;
        STATEMENT => fn limit_usage<'a>(limit: Option<LimitId>, at_most: u32) -> LimitUsage;
        STATEMENT => fn task_limits<'a>(id: TaskId) -> Vec<TaskLimit>;
    }
}
