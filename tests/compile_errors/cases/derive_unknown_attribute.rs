use serde::{Deserialize, Serialize};
use task_engine::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(quue = "mail", max_attempts = 5, colour = "red")]
struct SendMail {
    to: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(queue = "mail", queue = "letters")]
struct SendLetter {
    to: String,
}

fn main() {}
