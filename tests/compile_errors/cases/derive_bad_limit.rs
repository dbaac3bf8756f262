use serde::{Deserialize, Serialize};
use task_engine::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(limit = 0, rate = "100")]
struct Sync {
    customer: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(limit = 2, key = "custmer")]
struct Import {
    customer: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(in_order(key = "card"), secrets("card"))]
struct Charge {
    card: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(key = "order")]
struct Ship {
    order: u64,
}

fn main() {}
