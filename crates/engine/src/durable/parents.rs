//! Looks for the tasks that wait for awaited tasks, after the ends of these are committed:
//! parents of durable calls, and tasks that depend on them. What is lost here (the engine
//! dies, the store cannot be reached) is found by a heartbeat.

use std::sync::Arc;
use std::time::Duration;

use task_engine_core::task::TaskId;
use task_engine_store::contract::Store;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::record::OpenCount;

const BATCH_MAX: usize = 1000;
/// A call that takes longer, because many tasks are cancelled one after the other, no longer
/// delays the next.
const SLOW: Duration = Duration::from_millis(50);
/// How many slow calls may be under way.
const SLOW_MAX: usize = 3;

/// Where awaited tasks that have ended go.
#[derive(Clone)]
pub(crate) struct EndedTasks {
    sender: UnboundedSender<TaskId>,
    /// How many have not been looked at.
    open: Arc<OpenCount>,
}

impl EndedTasks {
    pub(crate) fn new() -> (Self, EndedTaskReceiver) {
        let (sender, receiver) = unbounded_channel();
        let open = Arc::<OpenCount>::default();
        (Self { sender, open: open.clone() }, EndedTaskReceiver { receiver, open })
    }

    pub(crate) fn send(&self, id: TaskId) {
        self.open.add(1);
        if self.sender.send(id).is_err() {
            self.open.done(1);
        }
    }

    /// How many have not been looked at, for tests of applications.
    pub(crate) fn open(&self) -> Arc<OpenCount> {
        self.open.clone()
    }
}

pub(crate) struct EndedTaskReceiver {
    receiver: UnboundedReceiver<TaskId>,
    open: Arc<OpenCount>,
}

impl EndedTaskReceiver {
    /// Looks for the tasks that wait for ended ones, until the last sender is gone.
    pub(crate) async fn resume_waiting(self, store: Arc<dyn Store>) {
        let resume = |ended| {
            let store = store.clone();
            async move { resume(&*store, ended).await }
        };
        self.run(resume).await;
    }

    async fn run<F>(self, resume: impl Fn(Vec<TaskId>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { mut receiver, open } = self;
        let mut calls = JoinSet::new();
        loop {
            let mut batch = Vec::new();
            if receiver.recv_many(&mut batch, BATCH_MAX).await == 0 {
                break;
            }
            let (done, is_done) = oneshot::channel::<()>();
            let (open, count) = (open.clone(), batch.len());
            let resumed = resume(batch);
            calls.spawn(async move {
                resumed.await;
                open.done(count);
                drop(done);
            });
            let _ = tokio::time::timeout(SLOW, is_done).await;
            while calls.try_join_next().is_some() {}
            while calls.len() > SLOW_MAX {
                calls.join_next().await;
            }
        }
        while calls.join_next().await.is_some() {}
    }
}

async fn resume(store: &dyn Store, ended: Vec<TaskId>) {
    if let Err(error) = store.resume_parents(&ended).await {
        tracing::warn!(
            "tasks that wait for {} ended ones are resumed with a later heartbeat: {error}",
            ended.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::*;

    /// A call that takes long delays none of the next.
    #[tokio::test]
    async fn slow_call_does_not_delay_others() {
        let (ended, receiver) = EndedTasks::new();
        let (slow, resumed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let resume = {
            let (slow, resumed) = (slow.clone(), resumed.clone());
            move |ids: Vec<TaskId>| {
                let (slow, resumed) = (slow.clone(), resumed.clone());
                async move {
                    if ids.contains(&TaskId(1)) {
                        slow.notified().await;
                    }
                    resumed.notify_one();
                }
            }
        };
        let running = tokio::spawn(receiver.run(resume));
        let open = ended.open();
        ended.send(TaskId(1));
        tokio::task::yield_now().await;
        ended.send(TaskId(2));
        resumed.notified().await;
        open.wait_until_at_most(1).await;
        slow.notify_one();
        open.wait_until_at_most(0).await;
        drop(ended);
        running.await.unwrap();
    }
}
