//! A search by time reads one step, however long the history is. For tests that fill the
//! tables of a store directly, because that is fast.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use task_engine_core::filter::Filter;
use task_engine_core::task::TaskId;
use task_engine_operations::search::{Search, SearchPage};
use task_engine_store::contract::Store;

/// The expected number of tasks: one a second, each started a second after its creation
/// and ended a second later.
pub const TASKS: i64 = 120_000;

/// Checks that searches by time read no more than one step. `first` is when the first
/// task was created.
pub async fn searches_by_time_read_one_step(store: &dyn Store, first: Timestamp) {
    let at = |second: i64| first + jiff::SignedDuration::from_secs(second);
    let (from, until) = (at(50_000), at(50_060));
    let between = format!("created>={from} created<{until}");
    let page = one_step(store, &between).await;
    assert_eq!(ids(&page), (50_001..=50_060).rev().collect::<Vec<_>>(), "{between}");
    assert_eq!(page.next, None, "all there are: {between}");

    let ran = format!("started<{until} ended>{from}");
    let page = one_step(store, &ran).await;
    assert_eq!(ids(&page)[..60], (49_999..=50_059).rev().collect::<Vec<_>>()[..60], "{ran}");

    let older = format!("created<{}", at(100));
    assert_eq!(ids(&one_step(store, &older).await).len(), 100, "{older}");
    let older = format!("updated<{}", at(102));
    assert_eq!(ids(&one_step(store, &older).await).len(), 100, "{older}");
    let newer = format!("created>={}", at(TASKS - 30));
    let page = one_step(store, &newer).await;
    assert_eq!((ids(&page).len(), page.next), (30, None), "{newer}");

    let nothing = format!("class=absent {between}");
    let page = one_step(store, &nothing).await;
    assert_eq!((ids(&page).len(), page.next), (0, None), "no empty page with a next");
    let ages = "created<now-1m created>now-30h class=work";
    assert!(!ids(&one_step(store, ages).await).is_empty(), "{ages}");

    // A term about ids turns it off: for ids that do not follow time.
    let page = one_step(store, &format!("{between} id>0")).await;
    assert_eq!((ids(&page).len(), page.next.is_some()), (0, true), "from the newest on");
}

/// No timeout: one step, and not another.
async fn one_step(store: &dyn Store, text: &str) -> SearchPage {
    let filter = Filter::parse(text, &TimeZone::UTC).expect(text);
    let search = Search { filter, before: None, limit: 500, timeout: Duration::ZERO };
    search.run(store).await.expect("search")
}

fn ids(found: &SearchPage) -> Vec<i64> {
    found
        .tasks
        .iter()
        .map(|task| {
            let TaskId(id) = task.row.id;
            id
        })
        .collect()
}
