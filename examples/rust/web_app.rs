//! A web application that creates tasks inside its own transactions, runs them in
//! the same process, and has the dashboard at `/tasks`.
//!
//! An order and the task to confirm it commit together: no order is without its
//! mail, and no mail without its order, even if the process is killed. The next
//! process that starts recovers its tasks. Any number of processes may run on one
//! machine. This example uses tokio-postgres; `web_app_sqlx.rs` is the same with
//! sqlx.
//!
//!     DATABASE_URL=postgres://… cargo run -p task-engine-examples --bin web_app
//!     curl -d ada@example.org http://127.0.0.1:8080/orders

use std::error::Error;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde::{Deserialize, Serialize};
use task_engine::postgres::{PgStore, Schema, tokio_postgres};
use task_engine::{Context, Failure, NewTask, StopHandle, Task, TaskEngine};
use task_engine_web::{Access, Dashboard, Role};
use tokio_util::sync::CancellationToken;

#[derive(Serialize, Deserialize)]
struct ConfirmOrder {
    order: i64,
}

impl Task for ConfirmOrder {
    const CLASS: &'static str = "confirm_order";
}

/// State that requests and tasks share.
#[derive(Clone)]
struct App {
    database: String,
}

impl App {
    /// A real application has a pool, like deadpool-postgres.
    async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let connected = tokio_postgres::connect(&self.database, tokio_postgres::NoTls).await;
        let (client, connection) = connected?;
        tokio::spawn(connection);
        Ok(client)
    }
}

async fn order(State(app): State<App>, customer: String) -> Result<String, (StatusCode, String)> {
    let failed = |error: Box<dyn Error>| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let order = place_order(&app, &customer).await.map_err(failed)?;
    Ok(format!("order {order} is placed\n"))
}

async fn place_order(app: &App, customer: &str) -> Result<i64, Box<dyn Error>> {
    let mut client = app.connect().await?;
    let transaction = client.transaction().await?;
    let insert = "INSERT INTO orders (customer) VALUES ($1) RETURNING id";
    let order = transaction.query_one(insert, &[&customer]).await?.get(0);
    let confirm = NewTask::of(&ConfirmOrder { order })?;
    Schema::default().create_in(&transaction, &[confirm]).await?;
    transaction.commit().await?;
    Ok(order)
}

async fn confirm_order(task: ConfirmOrder, cx: Context<App>) -> Result<(), Failure> {
    let client = cx.state().connect().await?;
    let select = "SELECT customer FROM orders WHERE id = $1";
    let customer: String = client.query_one(select, &[&task.order]).await?.get(0);
    println!("order {} is confirmed to {customer}", task.order);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // SIGTERM or Ctrl-C stops requests first, then tasks.
    let (stop, stopping) = (StopHandle::new(), CancellationToken::new());
    stop.stop_on_signals()?;

    let database = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a PostgreSQL")?;
    let app = App { database: database.clone() };
    let orders = "CREATE TABLE IF NOT EXISTS orders (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL)";
    app.connect().await?.batch_execute(orders).await?;
    let store = PgStore::connect(&database).await?;
    store.migrate().await?;

    // The dashboard has its own connections, so that no engine waits for it.
    // In production, `Access::by` lets the application identify the user.
    let watched = PgStore::connect_to_watch(&database, Schema::default()).await?;
    let dashboard = Dashboard::new(watched, Access::open_to(Role::Viewer))
        .base_path("/tasks")
        .stop_with(stopping.clone());
    let router = axum::Router::new()
        .route("/orders", post(order))
        .with_state(app.clone())
        .nest_service("/tasks", dashboard.router());
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let asked = stopping.clone().cancelled_owned();
    let serving =
        tokio::spawn(axum::serve(listener, router).with_graceful_shutdown(asked).into_future());

    // It also recovers the tasks of a process that was killed.
    let engine = TaskEngine::new(store).engine(app).stopped_by(stop).handle(confirm_order);
    let stopped = engine.run_until(std::future::pending()).await;
    stopping.cancel();
    serving.await??;
    println!("stopped, {} tasks were released", stopped?.released);
    Ok(())
}
