//! Compares the tables with the migrations, and checks that wake-ups arrive.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::poll_fn;
use task_engine_store::check::{Check, Verdict};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::AsyncMessage;

use crate::error::{SqlError, error_text, store_error};
use crate::executor::Executor as _;
use crate::schema::Schema;
use crate::store::StoreInner;

const OBJECTS: &str = statement(include_str!("../sql/operators/checks.sql"), "objects");

/// The longest time that a notification takes if notifications work.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(3);

type SchemaObjects = BTreeMap<(String, String), String>;

impl StoreInner {
    /// Runs the migrations in an uncommitted schema, compares, and rolls it back. A list
    /// of the expected objects would have to be maintained by hand, for every version of
    /// PostgreSQL.
    pub(crate) async fn drift(&self) -> Result<Check, StoreError> {
        const NAME: &str = "schema";
        let scratch = Schema::named(&format!("te_check_{:x}", fastrand::u64(..)))?;
        let mut client = self.connections.work().await?;
        let transaction = client.transaction().await?;
        let explain = |e: SqlError| {
            StoreError::Refused(format!(
                "it needs a temporary schema, and this user may not create one ({})",
                error_text(&e)
            ))
        };
        // Names are qualified with their schema, whatever the search path is.
        let begin = format!("SET LOCAL search_path = pg_catalog; CREATE SCHEMA {scratch}");
        transaction.batch_execute(&begin).await.map_err(explain)?;
        for statements in crate::migrate::statements() {
            transaction.batch_execute(&scratch.moved(statements)).await?;
        }
        let mut lists: Vec<SchemaObjects> = Vec::new();
        for schema in [&scratch, &self.schema] {
            let rows = transaction.query(OBJECTS, &[&format!("\"{schema}\"")]).await?;
            let plain = |text: Option<&str>| as_in(text.unwrap_or_default(), schema, &self.schema);
            let object = |row: &tokio_postgres::Row| {
                ((row.get("kind"), plain(row.get("name"))), plain(row.get("definition")))
            };
            lists.push(rows.iter().map(object).collect());
        }
        transaction.rollback().await?;
        let [expected, there] = &lists[..] else {
            return Ok(Check::unknown(NAME, "nothing to compare"));
        };
        Ok(compare(NAME, expected, there))
    }

    /// Sends a notification to itself, as creators send them to engines.
    pub(crate) async fn wake_ups(&self) -> Result<Check, StoreError> {
        const NAME: &str = "wake_ups";
        const REMEDY: &str = "connect engines to PostgreSQL itself, or to a pooler in session mode (pgbouncer: pool_mode = session); until then tasks begin up to 10 s late";
        if self.connections.are_behind_pooler() {
            let reason = "there is a pooler in between that gives each transaction another connection: engines look for work once a second, and hear of cancellations and new schedules at a heartbeat";
            let remedy = "nothing, if that is soon enough; else connect engines (not those who create tasks) to PostgreSQL itself, or to a pooler in session mode";
            return Ok(Check::bad(NAME, Verdict::Warning, reason, remedy));
        }
        let channel = format!("task-engine-check-{:x}", fastrand::u64(..));
        let (client, mut connection) = self.connections.connector.dedicated().await?;
        let mut messages = poll_fn(move |cx| connection.poll_message(cx));
        let listening = async {
            let listen = format!("LISTEN \"{channel}\"");
            client.batch_execute(&listen).await.map_err(|e| store_error(&e))?;
            let mut pids = Vec::new();
            for _ in 0..2 {
                let rows = client.simple_query("SELECT pg_backend_pid()").await;
                for message in rows.map_err(|e| store_error(&e))? {
                    if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                        pids.push(row.get(0).unwrap_or_default().to_owned());
                    }
                }
            }
            let other = self.connections.work().await?;
            other.execute("SELECT pg_notify($1, '')", &[&channel]).await?;
            Ok::<_, StoreError>(pids)
        };
        let hearing = async {
            while let Some(message) = messages.next().await {
                if let AsyncMessage::Notification(note) = message.map_err(|e| store_error(&e))?
                    && note.channel() == channel
                {
                    return Ok::<_, StoreError>(());
                }
            }
            Err(StoreError::Unavailable("the connection for wake-ups was closed".to_owned()))
        };
        // The connection needs polling: both run concurrently.
        let (mut pids, mut heard) = (None, None);
        let both = async {
            tokio::pin!(listening, hearing);
            while pids.is_none() || heard.is_none() {
                tokio::select! {
                    outcome = &mut listening, if pids.is_none() => pids = Some(outcome?),
                    outcome = &mut hearing, if heard.is_none() => heard = Some(outcome?),
                }
            }
            Ok::<_, StoreError>(())
        };
        let begun = tokio::time::Instant::now();
        let outcome = tokio::time::timeout(NOTIFICATION_TIMEOUT, both).await;
        let elapsed = begun.elapsed();
        if let Some(pids) = &pids
            && pids.windows(2).any(|two| two[0] != two[1])
        {
            let reason = "two statements of one connection ran in two server processes: there is a pooler in between, and LISTEN does not last";
            return Ok(Check::bad(NAME, Verdict::Wrong, reason, REMEDY));
        }
        Ok(match outcome {
            Ok(Ok(())) => Check::ok(
                NAME,
                format!(
                    "a notification arrives, {:.1} ms after its listener connects",
                    elapsed.as_secs_f64() * 1000.0
                ),
            ),
            Ok(Err(error)) => {
                Check::bad(NAME, Verdict::Wrong, format!("LISTEN fails: {error}"), REMEDY)
            }
            Err(_) => Check::bad(
                NAME,
                Verdict::Wrong,
                format!("no notification has arrived within {NOTIFICATION_TIMEOUT:?}"),
                REMEDY,
            ),
        })
    }
}

/// A definition as it would be in another schema.
fn as_in(text: &str, from: &Schema, to: &Schema) -> String {
    // A channel is named after its schema, but for the default one.
    let channels = [
        (from.channel(), to.channel()),
        (from.cancel_channel(), to.cancel_channel()),
        (from.schedule_channel(), to.schedule_channel()),
    ];
    let mut text = text
        .replace(&format!("\"{from}\"."), &format!("{to}."))
        .replace(&format!("{from}."), &format!("{to}."));
    for (old, new) in channels {
        text = text.replace(&format!("'{old}'"), &format!("'{new}'"));
    }
    text
}

fn compare(name: &'static str, expected: &SchemaObjects, there: &SchemaObjects) -> Check {
    let mut wrong = Vec::new();
    let mut remedy = Vec::new();
    for ((kind, object), definition) in expected {
        let missing = match there.get(&(kind.clone(), object.clone())) {
            None => true,
            Some(other) if other != definition => false,
            Some(_) => continue,
        };
        wrong.push(if missing {
            format!("the {kind} {object} is missing")
        } else {
            format!("the {kind} {object} is not what this version makes")
        });
        remedy.push(match (kind.as_str(), missing) {
            ("table" | "type", _) => {
                format!("restore the {kind} {object} from a backup; it should be: {definition}")
            }
            ("index", false) => format!("DROP INDEX {object}; {definition};"),
            ("function" | "view", _) | (_, true) => {
                format!("{};", definition.trim_end_matches([';', '\n', ' ']))
            }
            (_, false) => format!("drop it, then: {definition};"),
        });
    }
    let more = there.keys().filter(|key| !expected.contains_key(*key) && key.1 != "migrations");
    let more = more.filter(|(_, object)| !object.starts_with("migrations."));
    let more: Vec<_> =
        more.map(|(kind, object)| format!("the {kind} {object} is not ours")).collect();
    if wrong.is_empty() && more.is_empty() {
        return Check::ok(name, format!("all {} objects are as they should be", expected.len()));
    }
    if wrong.is_empty() {
        let remedy = "DROP it, unless you made it yourself";
        return Check::bad(name, Verdict::Warning, more.join("; "), remedy);
    }
    wrong.extend(more);
    Check::bad(name, Verdict::Wrong, wrong.join("; "), remedy.join("\n"))
}
