//! A web shop with axum, sqlx and Task Engine, in one process and one PostgreSQL.
//!
//! A request stores an order and creates its first task in one transaction. The tasks
//! charge → ship → notify follow each other, each created by the one before it. Kill the
//! process at any point: the next one that starts continues every order, and no order is
//! shipped twice. The parts, from top to bottom: tasks, their code, HTTP, the engine, `main`,
//! unit tests. `tests/shop.rs` places orders over HTTP and kills the shop meanwhile.
//!
//!     DATABASE_URL=postgres://… cargo run -p task-engine-shop
//!     curl --json '{"customer": "ada@example.org", "cents": 1200}' localhost:8080/orders
//!     curl localhost:8080/orders/1
//!     curl --json '{"products": 500}' localhost:8080/imports     # the answer has its task
//!     curl -X DELETE localhost:8080/imports/4
//!     open http://localhost:8080/tasks

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use task_engine::hooks::Metrics;
use task_engine::postgres::{PgStore, Schema};
use task_engine::{Context, Creation, Engine, Failure, Schedule, Task, TaskEngine, TaskId};
use task_engine_web::{Access, Dashboard, Recorder, Role};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS orders (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        customer text NOT NULL,
        cents bigint NOT NULL,
        state text NOT NULL DEFAULT 'placed');
    CREATE TABLE IF NOT EXISTS shipments (order_id bigint NOT NULL REFERENCES orders)";

// ---- The tasks: what is stored -------------------------------------------------------

/// At most one waits or runs for an order.
#[derive(Serialize, Deserialize, Task)]
#[task(
    queue = "payments",
    retries = 8,
    backoff = "1s..10m",
    timeout = "30s",
    unique = "order {order}"
)]
struct Charge {
    order: i64,
}

#[derive(Serialize, Deserialize, Task)]
#[task(backoff = "1s..1h", unique = "order {order}")]
struct Ship {
    order: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Task)]
#[task(backoff = "1s..1h")]
struct Notify {
    order: i64,
    message: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(retries = 0)]
struct ImportProducts {
    products: u32,
}

#[derive(Serialize, Deserialize, Task)]
struct ReportSales;

// ---- Their code ----------------------------------------------------------------------

/// The payment, the next task and the end of this task are one commit.
async fn charge(task: Charge, cx: Context<PgPool>) -> Result<(), Failure> {
    let mut tx = cx.state().begin().await?;
    let cents: i64 = sqlx::query_scalar("SELECT cents FROM orders WHERE id = $1")
        .bind(task.order)
        .fetch_one(&mut *tx)
        .await?;
    if cents <= 0 {
        let message = format!("order {} is not charged: {cents} cents", task.order);
        return Err(Failure::no_retry(message));
    }
    pay(task.order, cents).await?;
    set_state(&mut tx, task.order, "charged").await?;
    cx.create(Ship { order: task.order }).in_tx(&mut tx).await?;
    cx.complete_in(&mut tx, &()).await?; // last, and with `?`
    tx.commit().await?;
    Ok(())
}

/// The payment provider. A real one gets the order as its idempotency key, so that a
/// second attempt charges nothing.
async fn pay(_order: i64, _cents: i64) -> Result<(), std::io::Error> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(())
}

async fn ship(task: Ship, cx: Context<PgPool>) -> Result<(), Failure> {
    let order = task.order;
    let mut tx = cx.state().begin().await?;
    sqlx::query("INSERT INTO shipments VALUES ($1)").bind(order).execute(&mut *tx).await?;
    set_state(&mut tx, order, "shipped").await?;
    let message = format!("order {order} is on its way");
    cx.create(Notify { order, message }).in_tx(&mut tx).await?;
    cx.complete_in(&mut tx, &()).await?;
    tx.commit().await?;
    Ok(())
}

/// Mail is outside of the database: in the worst case the customer gets it twice.
async fn notify(task: Notify, cx: Context<PgPool>) -> anyhow::Result<()> {
    cx.log(format!("mail: {}", task.message));
    set_state(&mut *cx.state().acquire().await?, task.order, "notified").await?;
    Ok(())
}

async fn set_state(db: &mut PgConnection, order: i64, state: &str) -> sqlx::Result<()> {
    let update = sqlx::query("UPDATE orders SET state = $2 WHERE id = $1");
    update.bind(order).bind(state).execute(db).await?;
    Ok(())
}

/// A long task shows its progress, and ends when it is cancelled.
async fn import_products(task: ImportProducts, cx: Context<PgPool>) -> Result<u32, Failure> {
    for product in 1..=task.products {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(10)) => {} // reads one product
            () = cx.cancelled() => {
                return Err(Failure::named("Cancelled", format!("before product {product}")));
            }
        }
        let percent = 100.0 * f64::from(product) / f64::from(task.products);
        cx.progress(percent, format!("product {product} of {}", task.products));
    }
    Ok(task.products)
}

/// A task without parameters: the handler takes only the context.
async fn report_sales(cx: Context<PgPool>) -> anyhow::Result<i64> {
    let cents = "SELECT coalesce(sum(cents), 0)::bigint FROM orders WHERE state <> 'placed'";
    Ok(sqlx::query_scalar(cents).fetch_one(cx.state()).await?)
}

// ---- HTTP ----------------------------------------------------------------------------

#[derive(Clone)]
struct Shop {
    db: PgPool,
    tasks: TaskEngine,
}

fn router(shop: Shop) -> Router {
    Router::new()
        .route("/orders", post(place_order))
        .route("/orders/{id}", get(show_order))
        .route("/imports", post(start_import))
        .route("/imports/{task}", get(show_import).delete(cancel_import))
        .with_state(shop)
}

#[derive(Deserialize)]
struct NewOrder {
    customer: String,
    cents: i64,
}

/// The order and its first task commit together, or neither does.
async fn place_order(
    State(shop): State<Shop>,
    Json(new): Json<NewOrder>,
) -> Result<Response, HttpError> {
    let mut tx = shop.db.begin().await?;
    let insert = "INSERT INTO orders (customer, cents) VALUES ($1, $2) RETURNING id";
    let insert = sqlx::query_scalar(insert).bind(new.customer).bind(new.cents);
    let order: i64 = insert.fetch_one(&mut *tx).await?;
    shop.tasks.create(Charge { order }).in_tx(&mut tx).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(json!({ "order": order }))).into_response())
}

async fn show_order(
    State(shop): State<Shop>,
    Path(order): Path<i64>,
) -> Result<Json<Value>, HttpError> {
    let state = sqlx::query_scalar("SELECT state FROM orders WHERE id = $1").bind(order);
    let state: Option<String> = state.fetch_optional(&shop.db).await?;
    Ok(Json(json!({ "order": order, "state": state })))
}

/// One import at a time: a second request gets the task of the first.
async fn start_import(
    State(shop): State<Shop>,
    Json(import): Json<ImportProducts>,
) -> Result<Response, HttpError> {
    let (status, task) = match shop.tasks.create(import).unique("products").await? {
        Creation::Created(task) => (StatusCode::ACCEPTED, task),
        Creation::Kept(task) | Creation::Replaced(task) => (StatusCode::CONFLICT, task),
    };
    Ok((status, Json(json!({ "task": task.0 }))).into_response())
}

async fn show_import(
    State(shop): State<Shop>,
    Path(task): Path<i64>,
) -> Result<Response, HttpError> {
    let Some(task) = shop.tasks.get(TaskId(task)).await? else {
        return Ok(StatusCode::NOT_FOUND.into_response());
    };
    let progress = task.executions.last().and_then(|attempt| attempt.progress.as_ref());
    let percent = progress.map(|progress| progress.percent);
    Ok(Json(json!({ "status": task.row.status.as_str(), "percent": percent })).into_response())
}

async fn cancel_import(
    State(shop): State<Shop>,
    Path(task): Path<i64>,
) -> Result<StatusCode, HttpError> {
    shop.tasks.cancel(TaskId(task)).await?;
    Ok(StatusCode::ACCEPTED)
}

/// `?` in a request handler: status 500 with the error.
struct HttpError(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for HttpError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{:#}", self.0)).into_response()
    }
}

// ---- The engine ----------------------------------------------------------------------

/// `main` and the unit tests make the same engine. Its state is the pool.
fn engine(tasks: &TaskEngine, db: PgPool) -> Engine<PgPool> {
    let nightly = Schedule::cron("nightly report", "0 3 * * *").time_zone("Europe/Paris");
    tasks
        .engine(db)
        .queue("payments", 4) // workers of their own: imports do not delay payments
        .stop_timeout(Duration::from_secs(20)) // before the orchestrator kills the process
        .hook(Metrics)
        .schedule(nightly.task(&ReportSales))
        .handle(charge)
        .handle(ship)
        .handle(notify)
        .handle(import_products)
        .handle::<ReportSales, _>(report_sales)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let signalled = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        signalled.cancel();
    });

    // One pool for requests and tasks. An engine has a few connections of its own.
    let url = std::env::var("DATABASE_URL")?;
    let db = PgPool::connect(&url).await?;
    sqlx::raw_sql(TABLES).execute(&db).await?;
    let tasks = TaskEngine::from_pool(&url, db.clone())?;
    tasks.migrate().await?;

    // The dashboard at /tasks, with the metrics of this process at /tasks/metrics. In
    // production, `Access::by` lets the application identify the user.
    let recorder = Recorder::install()?;
    tokio::spawn(recorder.clone().keep());
    let watched = PgStore::connect_to_watch(&url, Schema::default()).await?;
    let dashboard = Dashboard::new(watched, Access::open_to(Role::Viewer))
        .base_path("/tasks")
        .engine_metrics(move || recorder.render())
        .stop_with(shutdown.clone());
    let router = router(Shop { db: db.clone(), tasks: tasks.clone() })
        .nest_service("/tasks", dashboard.router());

    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);

    // Both run until the signal. Then requests and running tasks finish.
    let serve =
        axum::serve(listener, router).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    let run = engine(&tasks, db).run_until(shutdown.cancelled_owned());
    let (_, stopped) =
        tokio::try_join!(async { anyhow::Ok(serve.await?) }, async { anyhow::Ok(run.await?) },)?;
    println!("stopped, {} tasks were released", stopped.released);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use task_engine::testing::Harness;
    use task_engine_test_harness::TestServer;

    /// A database of its own, for tests of code that uses SQL.
    async fn shop() -> anyhow::Result<(Harness<PgPool>, PgPool)> {
        let url = TestServer::shared().create_database().await;
        let db = PgPool::connect(&url).await?;
        sqlx::raw_sql(TABLES).execute(&db).await?;
        let store = PgStore::connect(&url).await?;
        let pool = db.clone();
        Ok((Harness::on(store, |tasks| engine(tasks, pool)).await, db))
    }

    async fn place(db: &PgPool, cents: i64) -> anyhow::Result<i64> {
        let insert = "INSERT INTO orders (customer, cents) VALUES ('ada', $1) RETURNING id";
        Ok(sqlx::query_scalar(insert).bind(cents).fetch_one(db).await?)
    }

    #[tokio::test]
    async fn order_is_charged_shipped_and_notified() -> anyhow::Result<()> {
        let (harness, db) = shop().await?;
        let order = place(&db, 1200).await?;
        harness.tasks().create(Charge { order }).await?;
        harness.drain().await.assert_all_done();
        let message = format!("order {order} is on its way");
        harness.assert_created(&Notify { order, message }).await;
        let report = harness.perform(ReportSales).await;
        assert_eq!(report.result::<i64>(), Ok(1200));
        Ok(())
    }

    #[tokio::test]
    async fn order_without_price_is_not_retried() -> anyhow::Result<()> {
        let (harness, db) = shop().await?;
        let order = place(&db, 0).await?;
        let failed = harness.perform(Charge { order }).await;
        assert!(failed.error().message.ends_with("is not charged: 0 cents"));
        assert!(!failed.will_be_retried());
        assert_eq!(harness.created::<Ship>().await.len(), 0);
        Ok(())
    }

    /// Without a server: this pool never connects.
    #[tokio::test]
    async fn import_counts_its_products() -> anyhow::Result<()> {
        let db = PgPool::connect_lazy("postgres://unused")?;
        let harness = Harness::new(|tasks| engine(tasks, db)).await;
        let done = harness.perform(ImportProducts { products: 3 }).await;
        assert_eq!(done.result::<u32>(), Ok(3));
        Ok(())
    }
}
