use task_engine::Task;

#[derive(Task)]
struct SendMail {
    to: String,
}

fn main() {}
