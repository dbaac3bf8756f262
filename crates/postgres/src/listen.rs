//! Wake-ups: one connection, probed. Behind a transaction pooler, which does not keep
//! LISTEN, a timer.

use std::time::Duration;

use futures_util::stream::poll_fn;
use futures_util::{Stream, StreamExt as _};
use task_engine_store::contract::WakeUp;
use task_engine_store::error::StoreError;
use tokio_postgres::{AsyncMessage, Client, Error};

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
        let messages = poll_fn(move |cx| connection.poll_message(cx));
        // All of them only ever end with an error.
        tokio::select! {
            end = self.receive(messages, hear) => end,
            end = self.subscribe_and_probe(&client, hear) => end,
            () = self.connections.pools_discarded() => Err(StoreError::Unavailable(
                "the server does not answer other connections".into(),
            )),
        }
    }

    async fn receive(
        &self,
        mut messages: impl Stream<Item = Result<AsyncMessage, Error>> + Unpin,
        hear: &(dyn Fn(WakeUp) + Send + Sync),
    ) -> Result<(), StoreError> {
        let (cancel, schedule) = (self.schema.cancel_channel(), self.schema.schedule_channel());
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
    }

    /// Subscribes, and then checks from time to time that the connection is alive.
    async fn subscribe_and_probe(
        &self,
        client: &Client,
        hear: &(dyn Fn(WakeUp) + Send + Sync),
    ) -> Result<(), StoreError> {
        let listen = format!(
            "LISTEN \"{}\"; LISTEN \"{}\"; LISTEN \"{}\"",
            self.schema.channel(),
            self.schema.cancel_channel(),
            self.schema.schedule_channel()
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
                Ok(reply) => reply.map_err(|e| store_error(&e))?,
                Err(_) => {
                    return Err(StoreError::Unavailable(
                        "the connection for wake-ups does not answer".into(),
                    ));
                }
            }
        }
    }
}
