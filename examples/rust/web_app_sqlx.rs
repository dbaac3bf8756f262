//! The web application of `web_app.rs` with sqlx (feature `sqlx`): tasks are
//! created inside a transaction of sqlx.
//!
//!     DATABASE_URL=postgres://… cargo run -p task-engine-examples --bin web_app_sqlx
//!     curl -d ada@example.org http://127.0.0.1:8080/orders

use std::error::Error;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde::{Deserialize, Serialize};
use task_engine::postgres::sqlx::{self, PgPool, Row as _};
use task_engine::postgres::{PgStore, Schema};
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

async fn order(
    State(pool): State<PgPool>,
    customer: String,
) -> Result<String, (StatusCode, String)> {
    let failed = |error: Box<dyn Error>| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let order = place_order(&pool, &customer).await.map_err(failed)?;
    Ok(format!("order {order} is placed\n"))
}

async fn place_order(pool: &PgPool, customer: &str) -> Result<i64, Box<dyn Error>> {
    let mut transaction = pool.begin().await?;
    let insert = sqlx::query("INSERT INTO orders (customer) VALUES ($1) RETURNING id");
    let order = insert.bind(customer).fetch_one(&mut *transaction).await?.get(0);
    let confirm = NewTask::of(&ConfirmOrder { order })?;
    Schema::default().create_in_sqlx(&mut transaction, &[confirm]).await?;
    transaction.commit().await?;
    Ok(order)
}

/// The state of the application is the pool itself.
async fn confirm_order(task: ConfirmOrder, cx: Context<PgPool>) -> Result<(), Failure> {
    let select = sqlx::query("SELECT customer FROM orders WHERE id = $1").bind(task.order);
    let customer: String = select.fetch_one(cx.state()).await?.get(0);
    println!("order {} is confirmed to {customer}", task.order);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (stop, stopping) = (StopHandle::new(), CancellationToken::new());
    stop.stop_on_signals()?;

    let database = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a PostgreSQL")?;
    let pool = PgPool::connect(&database).await?;
    let orders = "CREATE TABLE IF NOT EXISTS orders (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL)";
    sqlx::query(orders).execute(&pool).await?;
    let store = PgStore::connect(&database).await?;
    store.migrate().await?;

    let watched = PgStore::connect_to_watch(&database, Schema::default()).await?;
    let dashboard = Dashboard::new(watched, Access::open_to(Role::Viewer))
        .base_path("/tasks")
        .stop_with(stopping.clone());
    let router = axum::Router::new()
        .route("/orders", post(order))
        .with_state(pool.clone())
        .nest_service("/tasks", dashboard.router());
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let asked = stopping.clone().cancelled_owned();
    let serving =
        tokio::spawn(axum::serve(listener, router).with_graceful_shutdown(asked).into_future());

    // It also recovers the tasks of a process that was killed.
    let engine = TaskEngine::new(store).engine(pool).stopped_by(stop).handle(confirm_order);
    let stopped = engine.run_until(std::future::pending()).await;
    stopping.cancel();
    serving.await??;
    println!("stopped, {} tasks were released", stopped?.released);
    Ok(())
}
