//! Wake-ups: hints that come soon. Losing one delays work and loses none, so
//! an engine never depends on them; but here nothing makes them get lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use task_engine_store::contract::CancelReport;
use task_engine_store::contract::{Store, WakeUp};
use task_engine_store::error::StoreError;
use tokio::task::JoinHandle;

use crate::Database;
use crate::bench::{Bench, Player, WORK, new_task};
use crate::waiting::{eventually, within};

/// How soon a wake-up has to come.
const SOON: Duration = Duration::from_secs(1);

/// The first call says that listening has begun, before anything has happened.
pub async fn listening_begins_with_a_call(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let listener = Listener::begin(bench.store.clone()).await;
    assert!(!listener.has_ended(), "it goes on until the store goes away");
}

/// An engine that was told that nothing is due, and so has a right to be woken.
async fn sleeper(bench: &Bench) -> Player {
    let mut engine = bench.engine("sleeper").await;
    assert!(engine.claim_all(1).await.is_empty());
    engine
}

/// Creation wakes whoever listens on the same handle.
pub async fn creation_wakes(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let _sleeper = sleeper(&bench).await;
    let listener = Listener::begin(bench.store.clone()).await;
    for count in [1, 50] {
        listener.forget();
        bench.create_work(count).await;
        listener.hears(WakeUp::Work).await;
    }
}

/// Creation wakes those who listen on other handles, each of them.
pub async fn creation_by_another_handle_wakes(db: &dyn Database) {
    let creator = Bench::open(db).await;
    let _sleeper = sleeper(&creator).await;
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(Listener::begin(db.open().await).await);
    }
    for _ in 0..3 {
        listeners.iter().for_each(Listener::forget);
        creator.create_work(1).await;
        for listener in &listeners {
            listener.hears(WakeUp::Work).await;
        }
    }
}

/// A task that is scheduled wakes, too: timers have to be set again.
pub async fn a_scheduled_task_wakes(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let _sleeper = sleeper(&bench).await;
    let listener = Listener::begin(db.open().await).await;
    listener.forget();
    let soon = new_task(WORK).after(Duration::from_millis(400));
    bench.create(soon).await;
    listener.hears(WakeUp::Work).await;
}

/// An operator's retry makes work, and so it wakes.
pub async fn a_retry_wakes(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let later = new_task(WORK).after(Duration::from_secs(3600));
    let id = bench.create(later).await;
    let _sleeper = sleeper(&bench).await;
    let listener = Listener::begin(db.open().await).await;
    listener.forget();
    bench.store.retry(&[id]).await.expect("retry");
    listener.hears(WakeUp::Work).await;
}

/// A wish to cancel what runs reaches engines before their next heartbeat.
pub async fn a_wish_to_cancel_wakes(db: &dyn Database) {
    if !db.is_told() {
        return;
    }
    let bench = Bench::open(db).await;
    let id = bench.create_work(1).await[0];
    let mut engine = bench.engine("a").await;
    engine.claim_one().await;
    let listener = Listener::begin(bench.store.clone()).await;
    let operator = Bench::open(db).await;
    listener.forget();
    let reports = operator.store.cancel(&[id]).await.expect("cancel");
    assert_eq!(reports, [CancelReport::Requested]);
    listener.hears(WakeUp::Cancel).await;
}

/// What was created before the first call is there for the claim after it: no
/// gap is left between looking and listening.
pub async fn there_is_no_gap_before_listening(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    for _ in 0..5 {
        let other = Bench::open(db).await;
        let creation = tokio::spawn(async move { other.create_work(1).await });
        let listener = Listener::begin(bench.store.clone()).await;
        listener.forget();
        // As an engine does: listen, then look, then wait for a call.
        let claimed = eventually("the task is claimed", async || {
            let holds = engine.claim_all(10).await;
            if holds.is_empty() {
                listener.hears(WakeUp::Work).await;
                listener.forget();
                engine.wake();
            }
            (!holds.is_empty()).then_some(holds)
        })
        .await;
        let created = creation.await.expect("creation");
        assert_eq!(crate::bench::task_ids(&claimed), created);
    }
}

/// Hears what a store says, until it is dropped.
pub(crate) struct Listener {
    heard: Arc<Mutex<Vec<WakeUp>>>,
    task: JoinHandle<Result<(), StoreError>>,
}

impl Listener {
    pub(crate) async fn begin(store: Arc<dyn Store>) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = heard.clone();
        let task = tokio::spawn(async move {
            let hear = move |wake_up| ear.lock().expect("an ear").push(wake_up);
            store.listen(&hear).await
        });
        let listener = Self { heard, task };
        eventually("listening begins", async || {
            assert!(!listener.has_ended(), "listening ended");
            (!listener.heard().is_empty()).then_some(())
        })
        .await;
        listener
    }

    fn heard(&self) -> Vec<WakeUp> {
        self.heard.lock().expect("an ear").clone()
    }

    /// Only what comes from now on counts.
    pub(crate) fn forget(&self) {
        self.heard.lock().expect("an ear").clear();
    }

    pub(crate) async fn hears(&self, wanted: WakeUp) {
        within(SOON, &format!("{wanted:?}"), async || self.heard().contains(&wanted).then_some(()))
            .await;
    }

    fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}
