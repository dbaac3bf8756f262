use serde::{Deserialize, Serialize};
use task_engine::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(
    class = "",
    queue = "mail\n",
    priority = "high",
    retries = -1,
    backoff = "1h..30s",
    timeout = "30",
    cancel_grace = "soon"
)]
struct SendMail {
    to: String,
}

fn main() {}
