use serde::{Deserialize, Serialize};
use task_engine::{Context, Engine, Failure, TaskEngine};

#[derive(Serialize, Deserialize)]
struct SendMail {
    to: String,
}

async fn send_mail(_: SendMail, _: Context<()>) -> Result<(), Failure> {
    Ok(())
}

fn register(engine: Engine<()>) -> Engine<()> {
    engine.handle(send_mail)
}

async fn create(tasks: TaskEngine) {
    let _ = tasks.create(SendMail { to: "ada".into() }).await;
}

fn main() {}
