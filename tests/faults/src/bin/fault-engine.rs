//! An engine, a producer or a sender of signals for the fault tests. Its one argument is JSON
//! (`task_engine_faults::commands`). It ends when its standard input is closed, so a
//! killed test leaves no process.

use std::io::Read as _;
use std::process::ExitCode;

use task_engine_faults::commands::ProgramCommand;
use task_engine_faults::{engine, producer, signaller};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(99);
    });
    let filter = tracing_subscriber::EnvFilter::new("warn");
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let config = std::env::args().nth(1).unwrap_or_default();
    let done = match serde_json::from_str(&config) {
        Ok(ProgramCommand::Run(config)) => engine::run(config).await,
        Ok(ProgramCommand::Produce(config)) => producer::run(config).await,
        Ok(ProgramCommand::Signal(config)) => signaller::run(config).await,
        Err(error) => Err(format!("one argument is needed, an config as JSON: {error}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
