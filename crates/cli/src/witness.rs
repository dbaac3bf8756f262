//! `WitnessTask`: a sample class that leaves traces outside the database, so
//! that what the database says can be checked against what really happened.
//!
//! An engine knows it if it was started with `--witness FILE`. Parameters:
//! `{"ms": NUMBER, "fail": BOOLEAN}`; `fail` may be left out. It appends a line to
//! the file when it begins and one when it ends:
//!
//! ```text
//! begin TASK ATTEMPT PROCESS MICROSECONDS
//! end TASK ATTEMPT PROCESS MICROSECONDS
//! ```
//!
//! An attempt that is cancelled, or whose engine dies, has no `end`. Failures
//! are retried every 100 ms, a hundred times.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use task_engine::{ClassRules, Engine, Failure, RetryRule, Run};

const CLASS: &str = "WitnessTask";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WitnessTask {
    ms: u64,
    #[serde(default)]
    fail: bool,
}

/// Adds the class to an engine. The file is the engine's to name, not the
/// task's: whoever may create tasks must not be able to write anywhere.
pub(crate) fn handle_witness<S: Send + Sync + 'static>(
    engine: Engine<S>,
    file: PathBuf,
) -> Engine<S> {
    let rules = ClassRules::default().retry(RetryRule::every(Duration::from_millis(100), 100));
    let file = Arc::new(file);
    engine.handle_class(CLASS, rules, move |task, run| witness(file.clone(), task, run))
}

async fn witness<S>(file: Arc<PathBuf>, task: WitnessTask, run: Run<S>) -> Result<(), Failure> {
    let line = |word: &str| {
        let (id, attempt) = (run.task_id(), run.attempt());
        let now = Timestamp::now().as_microsecond();
        format!("{word} {id} {attempt} {} {now}\n", std::process::id())
    };
    testify(&file, &line("begin"))?;
    tokio::time::sleep(Duration::from_millis(task.ms)).await;
    testify(&file, &line("end"))?;
    if task.fail {
        Err(Failure::named("WitnessFailure", "failed as it was asked to"))
    } else {
        Ok(())
    }
}

fn testify(file: &Path, line: &str) -> io::Result<()> {
    let mut opened = OpenOptions::new().create(true).append(true).open(file)?;
    // One call, so that lines of many processes never mix.
    if opened.write(line.as_bytes())? != line.len() {
        return Err(io::Error::other("the file took a part of the line only"));
    }
    Ok(())
}
