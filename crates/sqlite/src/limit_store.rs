//! The contract of limits.

use task_engine_core::limit::{
    ClosedKey, DeclaredLimits, Limit, LimitChange, LimitCleared, LimitId, LimitRow, LimitUsage,
    TaskLimit,
};
use task_engine_core::task::TaskId;
use task_engine_store::contract::{LimitStore, StoreFuture};

use crate::store::{SqliteStore, jobs};
use crate::{limit_changes, limit_usage};

impl LimitStore for SqliteStore {
    jobs! {
        writer fn declare_limits<'a>(
            declared: &'a DeclaredLimits
        ) -> Vec<(String, LimitChange)> =>
            move |tx| limit_changes::declare(tx, &declared);
        writer fn set_limit<'a>(limit: &'a Limit) -> LimitChange =>
            move |tx| limit_changes::set(tx, &limit);
        writer fn clear_limit<'a>(name: &'a str) -> LimitCleared =>
            move |tx| limit_changes::clear(tx, &name);
        writer fn close_limit_keys<'a>(keys: &'a [ClosedKey]) -> () =>
            move |tx| limit_changes::close(tx, &keys);
        writer fn open_limit_key<'a>(name: &'a str, key: &'a str) -> bool =>
            move |tx| limit_changes::open(tx, &name, &key);
        writer fn prune_limit_keys<'a>(limit: u32) -> u64 =>
            move |tx| limit_changes::prune(tx, limit);
        reader fn limits<'a>() -> Vec<LimitRow> => limit_usage::limits;
        reader fn limit_usage<'a>(limit: Option<LimitId>, at_most: u32) -> LimitUsage =>
            move |tx| limit_usage::usage(tx, limit, at_most);
        reader fn task_limits<'a>(id: TaskId) -> Vec<TaskLimit> =>
            move |tx| limit_usage::task_limits(tx, id);
    }

    /// Other processes see the commit of the ends.
    fn wake_limited(&self) -> StoreFuture<'_, ()> {
        self.shared.wake_ups.send(true, false);
        Box::pin(std::future::ready(Ok(())))
    }
}
