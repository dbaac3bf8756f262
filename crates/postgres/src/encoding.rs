//! Only databases in UTF8 hold every task.
//!
//! In another encoding a task may contain text that cannot be sent to an engine, and SQL_ASCII
//! holds bytes that are no text at all. One such task would keep engines from all others.

use task_engine_store::error::StoreError;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::error::store_error;

const WANTED: &str = "UTF8";

pub(crate) async fn check(client: &Client, place: &str) -> Result<(), StoreError> {
    let messages = client.simple_query("SHOW server_encoding").await;
    let messages = messages.map_err(|e| store_error(&e))?;
    let encoding = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    match encoding {
        Some(WANTED) | None => Ok(()),
        Some(other) => Err(StoreError::Refused(format!(
            "the encoding of {place} is {other}, and Task Engine needs {WANTED}; make another database: CREATE DATABASE tasks ENCODING 'UTF8' TEMPLATE template0"
        ))),
    }
}
