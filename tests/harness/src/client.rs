//! A plain connection to a database.

use tokio_postgres::{Client, NoTls};

/// Connects as an application does, without this library.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}
