//! The durable tasks of `fault-engine`. Every value that they return is random, so that the
//! checks see which run of a step it comes from.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use task_engine::{Context, Failure, Task};

use crate::step_witness::{StepEvent, StepLine, append, steps_file, stop_file};
use crate::witness::{append_line, now_us};

/// The steps of a [`Process`], in their order.
pub const STEPS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];
/// The name of its sleep.
pub const SLEEP: &str = "pause";
/// The signal that it waits for.
pub const SIGNAL: &str = "go";
/// How many children it has.
pub const CHILDREN: usize = 3;

/// A durable task: steps, a sleep, a wait for a signal, and children.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Task)]
#[task(queue = "processes")]
pub struct Process {
    /// How long each step works.
    pub step_ms: u64,
    /// How long it sleeps.
    pub sleep_ms: u64,
    /// How long it waits for the signal.
    pub timeout_ms: u64,
    /// The points of the code at which it stops, once each, until its engine is killed: the
    /// name of a step, `code of` a step, `signal` or `children`.
    #[serde(default)]
    pub stops: Vec<String>,
}

/// A child of a [`Process`].
#[derive(Debug, Clone, Serialize, Deserialize, Task)]
#[task(queue = "parts")]
pub struct Part {
    /// Its number.
    pub number: usize,
    /// How long its step works.
    pub step_ms: u64,
}

/// Writes what an attempt observes. Its end is written when the handler's future is dropped,
/// because a suspended attempt does not return.
struct Observer<'a> {
    cx: &'a Context<Arc<Path>>,
    stops: &'a [String],
    step_ms: u64,
}

impl<'a> Observer<'a> {
    fn begin(
        cx: &'a Context<Arc<Path>>,
        stops: &'a [String],
        step_ms: u64,
    ) -> Result<Self, Failure> {
        let observer = Self { cx, stops, step_ms };
        observer.write_attempt("begin")?;
        Ok(observer)
    }

    fn write_attempt(&self, word: &str) -> std::io::Result<()> {
        let (id, attempt) = (self.cx.task_id(), self.cx.attempt());
        let line = format!("{word} {id} {attempt} {} {}\n", std::process::id(), now_us());
        append_line(self.cx.state(), &line)
    }

    fn write(&self, event: StepEvent) -> std::io::Result<()> {
        let line = StepLine {
            task: self.cx.task_id().0,
            attempt: self.cx.attempt(),
            time_us: now_us(),
            clock: Timestamp::now(),
            event,
        };
        append(&steps_file(self.cx.state()), &line)
    }

    /// Stops here if it should and has not done so before.
    async fn stop_once(&self, point: &str) {
        if self.stops.iter().any(|stop| stop == point) {
            let file = stop_file(self.cx.state(), self.cx.task_id().0, point);
            if File::create_new(file).is_ok() {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn step(&self, step: &str) -> Result<u64, Failure> {
        let value = self.cx.step(step, || self.code(step)).await?;
        let number = u64::from_str_radix(&value, 16)?;
        self.write(StepEvent::Received { step: step.to_owned(), value })?;
        self.stop_once(step).await;
        Ok(number)
    }

    async fn code(&self, step: &str) -> Result<String, Failure> {
        let step = step.to_owned();
        self.write(StepEvent::CodeStarted { step: step.clone() })?;
        tokio::time::sleep(ms(self.step_ms)).await;
        let value = format!("{:08x}", fastrand::u32(..));
        self.write(StepEvent::CodeEnded { step: step.clone(), value: value.clone() })?;
        self.stop_once(&format!("code of {step}")).await;
        Ok(value)
    }
}

impl Drop for Observer<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.write_attempt("end") {
            eprintln!("the end of an attempt was not written: {error}");
        }
    }
}

/// Executes a [`Process`]. Its result is the sum of the results of its children.
pub async fn process(task: Process, cx: Context<Arc<Path>>) -> Result<u64, Failure> {
    let observer = Observer::begin(&cx, &task.stops, task.step_ms)?;
    observer.step("one").await?;
    observer.step("two").await?;
    cx.sleep(SLEEP, ms(task.sleep_ms)).await;
    observer.write(StepEvent::Slept)?;
    observer.step("three").await?;
    let payload = cx.wait_for::<String>(SIGNAL, ms(task.timeout_ms)).await.ok();
    observer.write(StepEvent::Signal { payload })?;
    observer.stop_once("signal").await;
    observer.step("four").await?;
    let step_ms = task.step_ms;
    let children = (0..CHILDREN).map(|number| Part { number, step_ms });
    let results: Result<Vec<u64>, _> = cx.call_all(children).await.into_iter().collect();
    let results = results?;
    let sum = results.iter().sum();
    observer.write(StepEvent::Children { results })?;
    observer.stop_once("children").await;
    observer.step("five").await?;
    observer.step("six").await?;
    observer.write(StepEvent::Result { sum })?;
    Ok(sum)
}

/// Executes a [`Part`]. Its result is a random number.
pub async fn part(task: Part, cx: Context<Arc<Path>>) -> Result<u64, Failure> {
    let observer = Observer::begin(&cx, &[], task.step_ms)?;
    observer.step("work").await
}

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}
