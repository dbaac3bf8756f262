//! Wake-ups: hints that come soon. Losing one delays work and loses none, so
//! an engine never depends on them; but here nothing makes them get lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use task_engine_store::contract::CancelReport;
use task_engine_store::contract::{Store, WakeUp};
use task_engine_store::error::StoreError;
use tokio::task::JoinHandle;

use crate::Database;
use crate::fixture::{Fixture, TestEngine, WORK, new_task};
use crate::waiting::{wait_for, within};

/// How soon a wake-up has to come.
const SOON: Duration = Duration::from_secs(1);

/// The first call says that listening has begun, before anything has happened.
pub async fn listening_starts_with_wake_up(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let listener = Listener::begin(fixture.store.clone()).await;
    assert!(!listener.has_ended(), "it goes on until the store goes away");
}

/// An engine that was told that nothing is due, and so has a right to be woken.
async fn sleeper(fixture: &Fixture) -> TestEngine {
    let mut engine = fixture.engine("sleeper").await;
    assert!(engine.claim_all(1).await.is_empty());
    engine
}

/// Creation wakes whoever listens on the same handle.
pub async fn create_wakes(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let _sleeper = sleeper(&fixture).await;
    let listener = Listener::begin(fixture.store.clone()).await;
    for count in [1, 50] {
        listener.forget();
        fixture.create_work(count).await;
        listener.hears(WakeUp::Work).await;
    }
}

/// Creation wakes those who listen on other handles, each of them.
pub async fn create_by_other_handle_wakes(db: &dyn Database) {
    let creator = Fixture::open(db).await;
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
pub async fn scheduled_task_wakes(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let _sleeper = sleeper(&fixture).await;
    let listener = Listener::begin(db.open().await).await;
    listener.forget();
    let soon = new_task(WORK).after(Duration::from_millis(400));
    fixture.create(soon).await;
    listener.hears(WakeUp::Work).await;
}

/// An operator's retry makes work, and so it wakes.
pub async fn retry_wakes(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let later = new_task(WORK).after(Duration::from_secs(3600));
    let id = fixture.create(later).await;
    let _sleeper = sleeper(&fixture).await;
    let listener = Listener::begin(db.open().await).await;
    listener.forget();
    fixture.store.retry(&[id]).await.expect("retry");
    listener.hears(WakeUp::Work).await;
}

/// A cancel_request to cancel what runs reaches engines before their next heartbeat.
pub async fn cancel_request_wakes(db: &dyn Database) {
    if !db.receives_wake_ups() {
        return;
    }
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    engine.claim_one().await;
    let listener = Listener::begin(fixture.store.clone()).await;
    let operator = Fixture::open(db).await;
    listener.forget();
    let reports = operator.store.cancel(&[id]).await.expect("cancel");
    assert_eq!(reports, [CancelReport::Requested]);
    listener.hears(WakeUp::Cancel).await;
}

/// What was created before the first call is there for the claim after it: no
/// gap is left between looking and listening.
pub async fn no_wake_up_is_missed(db: &dyn Database) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for _ in 0..5 {
        let other = Fixture::open(db).await;
        let creation = tokio::spawn(async move { other.create_work(1).await });
        let listener = Listener::begin(fixture.store.clone()).await;
        listener.forget();
        // As an engine does: listen, then look, then wait for a call.
        let claimed = wait_for("the task is claimed", async || {
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
        assert_eq!(crate::fixture::task_ids(&claimed), created);
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
        wait_for("listening begins", async || {
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
