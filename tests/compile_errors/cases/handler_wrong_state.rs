use serde::{Deserialize, Serialize};
use task_engine::{Context, Engine, Failure, Task};

#[derive(Serialize, Deserialize, Task)]
struct SendMail {
    to: String,
}

struct App;

async fn send_mail(_: SendMail, _: Context<()>) -> Result<(), Failure> {
    Ok(())
}

fn register(engine: Engine<App>) -> Engine<App> {
    engine.handle(send_mail)
}

fn main() {}
