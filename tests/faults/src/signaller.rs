//! The sender of signals of `fault-engine`: sends each confirmed task its signal, at a random
//! time, some of them twice, and on PostgreSQL also in transactions. It may be killed and
//! started again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use task_engine::{SignalStatus, Store, StoreError, TaskEngine, TaskId};
use task_engine_core::step::TaskSteps;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use crate::commands::SignallerConfig;
use crate::durable::SIGNAL;
use crate::engine::open;
use crate::step_witness::{SignalLine, SignalState, append, read_lines};

/// Sends signals until this many tasks have been sent one.
pub async fn run(config: SignallerConfig) -> Result<(), String> {
    let store = open(&config.database).await.map_err(|e| e.to_string())?;
    let sender = Arc::new(Sender { tasks: TaskEngine::new(store.clone()), store, config });
    let mut begun = sender.answered();
    let mut sending = JoinSet::new();
    while begun.len() < sender.config.count {
        for id in confirmed(&sender.config.acks) {
            if begun.insert(id) {
                sending.spawn(sender.clone().send_to(TaskId(id)));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while let Some(sent) = sending.join_next().await {
        sent.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The tasks whose creation was confirmed.
fn confirmed(acks: &Path) -> Vec<i64> {
    let text = std::fs::read_to_string(acks).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.filter_map(|line| line.trim_end().parse().ok()).collect()
}

struct Sender {
    tasks: TaskEngine,
    store: Arc<dyn Store>,
    config: SignallerConfig,
}

/// What happens to the transaction of a signal.
#[derive(Clone, Copy, PartialEq)]
enum TransactionEnd {
    Commit,
    RollBack,
}

impl Sender {
    /// The tasks that got a signal before this process was started again.
    fn answered(&self) -> BTreeSet<i64> {
        let lines: Vec<SignalLine> = read_lines(&self.config.signals);
        let answered =
            |line: &&SignalLine| matches!(line.state, SignalState::Accepted | SignalState::Refused);
        lines.iter().filter(answered).map(|line| line.task).collect()
    }

    fn write(&self, id: TaskId, payload: &str, state: SignalState) -> std::io::Result<()> {
        let line = SignalLine { task: id.0, payload: payload.to_owned(), state };
        append(&self.config.signals, &line)
    }

    /// All signals of one task: before it waits, while it waits, or after its timeout.
    async fn send_to(self: Arc<Self>, id: TaskId) -> std::io::Result<()> {
        match fastrand::u8(..4) {
            0 => {}
            1 => pause(3000).await,
            _ => {
                self.wait_begun(id).await;
                pause(fastrand::choice([100, 3000]).unwrap_or(0)).await;
            }
        }
        let has_transactions = self.config.database.starts_with("postgres://");
        if has_transactions && fastrand::u8(..3) == 0 {
            self.send(id, Some(TransactionEnd::RollBack)).await?;
        }
        let transaction = (has_transactions && fastrand::bool()).then_some(TransactionEnd::Commit);
        if fastrand::bool() {
            // Twice, at the same time or one after the other.
            let second = async {
                pause(fastrand::choice([0, 500]).unwrap_or(0)).await;
                self.send(id, None).await
            };
            let (first, second) = tokio::join!(self.send(id, transaction), second);
            first?;
            second?;
        } else {
            self.send(id, transaction).await?;
        }
        Ok(())
    }

    /// Returns when the task waits for its signal.
    async fn wait_begun(&self, id: TaskId) {
        let waits = |steps: TaskSteps| steps.steps.iter().any(|step| step.name == SIGNAL);
        while !self.store.steps(id).await.is_ok_and(waits) {
            pause(100).await;
        }
    }

    /// Sends one signal, again after an error.
    async fn send(&self, id: TaskId, transaction: Option<TransactionEnd>) -> std::io::Result<()> {
        loop {
            let payload = format!("{:016x}", fastrand::u64(..));
            self.write(id, &payload, SignalState::Sending)?;
            let sent = match transaction {
                None => self.tasks.signal(id, SIGNAL, &payload).await.map(|report| report.status),
                Some(end) => self.send_in_transaction(id, &payload, end).await,
            };
            let state = match sent {
                Err(error) => {
                    eprintln!("no answer to a signal: {error}");
                    SignalState::Unknown
                }
                Ok(status) if !status.is_accepted() => SignalState::Refused,
                Ok(_) if transaction == Some(TransactionEnd::RollBack) => SignalState::RolledBack,
                Ok(_) => SignalState::Accepted,
            };
            self.write(id, &payload, state)?;
            if state != SignalState::Unknown {
                return Ok(());
            }
            pause(200).await;
        }
    }

    async fn send_in_transaction(
        &self,
        id: TaskId,
        payload: &str,
        end: TransactionEnd,
    ) -> Result<SignalStatus, StoreError> {
        let failed = |error: tokio_postgres::Error| StoreError::Unavailable(error.to_string());
        let (mut client, connection) =
            tokio_postgres::connect(&self.config.database, NoTls).await.map_err(failed)?;
        tokio::spawn(connection);
        let transaction = client.transaction().await.map_err(failed)?;
        let report = self.tasks.signal_in(&transaction, id, SIGNAL, &payload).await?;
        // The task waits for the end of the transaction.
        pause(400).await;
        match end {
            TransactionEnd::Commit => transaction.commit().await,
            TransactionEnd::RollBack => transaction.rollback().await,
        }
        .map_err(failed)?;
        Ok(report.status)
    }
}

/// At most this long.
async fn pause(latest_ms: u64) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..=latest_ms))).await;
}
