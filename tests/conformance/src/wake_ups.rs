//! Wake-ups are hints: a lost one delays work, so an engine does not depend on them. In
//! these tests none is lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use task_engine_core::limit::{ClosedKey, LimitOptions};
use task_engine_store::contract::CancelReport;
use task_engine_store::contract::{Store, WakeUp};
use task_engine_store::error::StoreError;
use tokio::task::JoinHandle;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestEngine, WORK, new_task};
use crate::limits::limit_work;
use crate::waiting::{wait_for, within};

/// The time limit for a wake-up.
const SOON: Duration = Duration::from_secs(1);

/// The first wake-up reports that listening has begun, before any event.
pub async fn listening_starts_with_wake_up(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let listener = Listener::begin(fixture.store.clone()).await;
    assert!(!listener.has_ended(), "it goes on until the store goes away");
}

/// An engine whose claim reported "empty", so that it must be woken.
async fn sleeper(fixture: &Fixture) -> TestEngine {
    let mut engine = fixture.engine("sleeper").await;
    assert!(engine.claim_all(1).await.is_empty());
    engine
}

/// Creation wakes listeners on the same handle.
pub async fn create_wakes(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let _sleeper = sleeper(&fixture).await;
    let listener = Listener::begin(fixture.store.clone()).await;
    for count in [1, 50] {
        listener.forget();
        fixture.create_work(count).await;
        listener.hears(WakeUp::Work).await;
    }
}

/// Creation wakes listeners on all other handles.
pub async fn create_by_other_handle_wakes(db: &dyn TestDatabase) {
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
pub async fn scheduled_task_wakes(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let _sleeper = sleeper(&fixture).await;
    let listener = Listener::begin(db.open().await).await;
    listener.forget();
    let soon = new_task(WORK).after(Duration::from_millis(400));
    fixture.create(soon).await;
    listener.hears(WakeUp::Work).await;
}

/// A retry by an operator makes a task due, so it wakes.
pub async fn retry_wakes(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let later = new_task(WORK).after(Duration::from_secs(3600));
    let id = fixture.create(later).await;
    let _sleeper = sleeper(&fixture).await;
    let listener = Listener::begin(db.open().await).await;
    listener.forget();
    fixture.store.retry(&[id]).await.expect("retry");
    listener.hears(WakeUp::Work).await;
}

/// A cancel request for a running task reaches engines before their next heartbeat.
pub async fn cancel_request_wakes(db: &dyn TestDatabase) {
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

/// The end of an attempt that held a key wakes engines on all handles, and so does a limit
/// that is raised or cleared, and a key that is opened.
pub async fn freed_limit_wakes(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(1)).await;
    fixture.create_work(9).await;
    let mut engine = fixture.engine("sleeper").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 1, "the engine is idle because of the limit");
    let key = holds[0].task.limited.as_ref().expect("limits").lane_key.0[0].clone();
    let (own, other) =
        (Listener::begin(fixture.store.clone()).await, Listener::begin(db.open().await).await);
    let listeners = [own, other];
    for event in ["end", "raise", "open", "clear"] {
        if event == "open" {
            let closed_for = Duration::from_secs(3600);
            let (limit, key) = (key.0, key.1.clone());
            let closed = ClosedKey { limit, key, closed_for, reason: "busy".to_owned() };
            fixture.store.close_limit_keys(&[closed]).await.expect("close");
        }
        engine.claim_all(10).await;
        listeners.iter().for_each(Listener::forget);
        match event {
            "end" => {
                assert_eq!(engine.record(&[holds[0].succeeds()]).await, []);
                fixture.store.wake_limited().await.expect("wake_limited");
            }
            "raise" => {
                limit_work(&fixture, LimitOptions::max(3)).await;
            }
            "open" => assert!(fixture.store.open_limit_key(WORK, "").await.expect("open")),
            _ => {
                fixture.store.clear_limit(WORK).await.expect("clear");
            }
        }
        for listener in &listeners {
            listener.hears(WakeUp::Work).await;
        }
    }
}

/// A task that was created before the first wake-up is found by the claim after it: there
/// is no gap between scanning and listening.
pub async fn no_wake_up_is_missed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for _ in 0..5 {
        let other = Fixture::open(db).await;
        let creation = tokio::spawn(async move { other.create_work(1).await });
        let listener = Listener::begin(fixture.store.clone()).await;
        listener.forget();
        // As an engine does: listen, then scan, then wait for a wake-up.
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

/// Collects the wake-ups of a store until it is dropped.
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

    /// Only later wake-ups count.
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
