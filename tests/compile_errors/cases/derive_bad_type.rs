use serde::{Deserialize, Serialize};
use task_engine::Task;

#[derive(Serialize, Deserialize, Task)]
struct Import<T> {
    rows: Vec<T>,
}

#[derive(Serialize, Deserialize, Task)]
struct Resize(u64, u32);

#[derive(Serialize, Deserialize, Task)]
#[task(unique = "{width}")]
enum Render {
    Png { width: u32 },
    Nothing,
}

fn main() {}
