use serde::{Deserialize, Serialize};
use task_engine::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(retry = 5)]
struct SendMail {
    to: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(retries = 0, backoff = "30s")]
struct Charge {
    order: u64,
}

fn main() {}
