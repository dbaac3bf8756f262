use serde::{Deserialize, Serialize};
use task_engine::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(timeout = "1 month", backoff = "5 parsecs", cancel_grace = 2)]
struct SendMail {
    to: String,
}

fn main() {}
