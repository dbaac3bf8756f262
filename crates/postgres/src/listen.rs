//! Wake-ups: one connection, probed. Behind a transaction pooler, which does not keep
//! LISTEN, a timer.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::poll_fn;
use task_engine_store::contract::WakeUp;
use task_engine_store::error::StoreError;
use tokio_postgres::AsyncMessage;

use crate::error::store_error;
use crate::store::StoreInner;

/// A connection that is dead on one side only is found out within this and
/// [`PROBE_TIMEOUT`]; the engine's poll bridges the time.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often engines poll when notifications do not work.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl StoreInner {
    pub(crate) async fn listen(
        &self,
        hear: &(dyn Fn(WakeUp) + Send + Sync),
    ) -> Result<(), StoreError> {
        if self.connections.are_behind_pooler() {
            hear(WakeUp::Cancel);
            hear(WakeUp::Schedule);
            loop {
                hear(WakeUp::Work);
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
        let (client, mut connection) = self.connections.connector.dedicated().await?;
        let cancel_channel = self.schema.cancel_channel();
        let (channel, cancel) = (self.schema.channel(), cancel_channel.clone());
        let schedule_channel = self.schema.schedule_channel();
        let schedule = schedule_channel.clone();
        let mut messages = poll_fn(move |cx| connection.poll_message(cx));
        let hearing = async {
            while let Some(message) = messages.next().await {
                match message.map_err(|e| store_error(&e))? {
                    AsyncMessage::Notification(note) if note.channel() == cancel => {
                        hear(WakeUp::Cancel);
                    }
                    AsyncMessage::Notification(note) if note.channel() == schedule => {
                        hear(WakeUp::Schedule);
                    }
                    AsyncMessage::Notification(note) => {
                        tracing::trace!("Received notification for a task [{}]", note.payload());
                        hear(WakeUp::Work);
                    }
                    _ => {}
                }
            }
            Err(StoreError::Unavailable("PostgreSQL closed the connection for wake-ups".into()))
        };
        let probing = async {
            let listen = format!(
                "LISTEN \"{channel}\"; LISTEN \"{cancel_channel}\"; LISTEN \"{schedule_channel}\""
            );
            client.batch_execute(&listen).await.map_err(|e| store_error(&e))?;
            // There was no notification of tasks that were created before.
            hear(WakeUp::Work);
            hear(WakeUp::Cancel);
            hear(WakeUp::Schedule);
            loop {
                tokio::time::sleep(PROBE_INTERVAL).await;
                if self.connections.are_behind_pooler() {
                    return Err(StoreError::Unavailable("a pooler in between forgets it".into()));
                }
                match tokio::time::timeout(PROBE_TIMEOUT, client.batch_execute("")).await {
                    Ok(answer) => answer.map_err(|e| store_error(&e))?,
                    Err(_) => {
                        return Err(StoreError::Unavailable(
                            "the connection for wake-ups does not answer".into(),
                        ));
                    }
                }
            }
        };
        // All of them only ever end with an error.
        tokio::select! {
            end = hearing => end,
            end = probing => end,
            () = self.connections.pools_discarded() => Err(StoreError::Unavailable(
                "the server does not answer other connections".into(),
            )),
        }
    }
}
