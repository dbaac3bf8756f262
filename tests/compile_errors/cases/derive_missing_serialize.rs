use task_engine::Task;

#[derive(serde::Deserialize, Task)]
struct SendMail {
    to: String,
}

fn main() {}
