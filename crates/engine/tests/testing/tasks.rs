//! The application that these tests are about.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::testing::Harness;
use task_engine::{Context, Engine, Failure, Hook, Json, RetryRule, Task, TaskEngine, TaskOptions};

#[derive(Default)]
pub(crate) struct App {
    pub(crate) sent: AtomicU32,
    pub(crate) begun: tokio::sync::Notify,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SendMail {
    pub(crate) to: String,
    pub(crate) words: u32,
}

impl Task for SendMail {
    const CLASS: &'static str = "send_mail";

    fn options() -> TaskOptions {
        TaskOptions::default()
            .retry(RetryRule::every(Duration::from_secs(600), 3))
            .timeout(Duration::from_millis(200))
    }
}

pub(crate) fn mail(to: &str) -> SendMail {
    SendMail { to: to.to_owned(), words: 7 }
}

async fn send_mail(mail: SendMail, cx: Context<App>) -> Result<u32, Failure> {
    cx.log(format!("to {}", mail.to));
    cx.progress(50, "connected");
    match mail.to.as_str() {
        "unknown" => Err(Failure::no_retry("unknown recipient")),
        "panic" => panic!("the mail is on fire"),
        "slow" => {
            std::future::pending::<()>().await;
            Ok(0)
        }
        "cancelled" => {
            cx.state().begun.notify_one();
            cx.cancelled().await;
            Err("asked to end".into())
        }
        "limited" if cx.attempt() == 1 => Err(Failure::snooze(Duration::from_secs(3600))),
        // Twice, and then it works.
        "busy" if cx.retry_number() < 2 => Err("the line is busy".into()),
        _ => {
            cx.state().sent.fetch_add(1, Ordering::Relaxed);
            Ok(mail.words)
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Newsletter {
    pub(crate) readers: Vec<String>,
}

impl Task for Newsletter {
    const CLASS: &'static str = "newsletter";
}

async fn newsletter(task: Newsletter, cx: Context<App>) -> Result<usize, Failure> {
    for reader in &task.readers {
        cx.create(mail(reader)).priority(3).await?;
    }
    Ok(task.readers.len())
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Again;

impl Task for Again {
    const CLASS: &'static str = "again";
}

async fn again(_: Again, cx: Context<App>) -> Result<(), Failure> {
    cx.create(Again).await?;
    Ok(())
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Task for Login {
    const CLASS: &'static str = "login";
    const SECRETS: &'static [&'static str] = &["password"];
}

#[allow(clippy::needless_pass_by_value)] // As handlers are.
fn login(_: Login, cx: Context<App>) -> Result<String, Failure> {
    Ok(std::thread::current().name().unwrap_or_default().to_owned() + cx.class())
}

/// Adds one to every number that is a result.
struct AddOne;

impl Hook<App> for AddOne {
    async fn after(
        &self,
        _: &Context<App>,
        outcome: Result<Json, Failure>,
    ) -> Result<Json, Failure> {
        let number: u32 = outcome?.decode()?;
        Ok(Json::encode(&(number + 1))?)
    }
}

/// As an application makes its engine, for production and for tests.
pub(crate) fn engine(tasks: &TaskEngine) -> Engine<App> {
    tasks
        .engine(App::default())
        .handle(send_mail)
        .handle(newsletter)
        .handle(again)
        .handle_blocking(login)
        .hook_for(["send_mail"], AddOne)
}

pub(crate) async fn harness() -> Harness<App> {
    Harness::new(engine).await
}

/// The words of the panic that this ends with.
pub(crate) async fn panic_of<T>(work: impl Future<Output = T>) -> String {
    use futures_util::FutureExt as _;
    let ended = std::panic::AssertUnwindSafe(work).catch_unwind().await;
    let panic = ended.err().expect("it panics");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).expect("it has words").to_owned()
}
