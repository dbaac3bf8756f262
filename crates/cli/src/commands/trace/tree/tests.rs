use super::*;
use task_engine_core::task::TaskRow;

fn task(id: i64, parent: Option<i64>) -> FlowTask {
    let at = Timestamp::UNIX_EPOCH;
    FlowTask {
        row: TaskRow {
            id: TaskId(id),
            status: TaskStatus::Stopped,
            class: "a".into(),
            queue: "default".into(),
            priority: 0,
            created_at: at,
            scheduled_at: at,
            updated_at: at,
            attempts: 0,
            retry_number: 0,
            instance: None,
            error: None,
            is_blocked: false,
        },
        parent_id: parent.map(TaskId),
        name: None,
        due_at: at,
        executions: Vec::new(),
    }
}

fn text(tasks: &[FlowTask]) -> String {
    let mut out = Vec::new();
    write_text(
        &mut out,
        tasks,
        &Dependencies::default(),
        &order(tasks),
        None,
        Timestamp::UNIX_EPOCH,
    )
    .unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn children_stand_under_their_parents() {
    let tasks =
        [task(1, None), task(2, Some(1)), task(3, Some(1)), task(4, Some(2)), task(5, Some(99))];
    assert_eq!(
        text(&tasks),
        "1 a stopped\n\
         ├─ 2 a stopped\n\
         │  └─ 4 a stopped\n\
         └─ 3 a stopped\n\
         5 a stopped, created by task 99, which is not here\n"
    );
}

#[test]
fn cycles_and_unknown_parents_are_roots() {
    let shown = text(&[task(1, Some(2)), task(2, Some(1)), task(3, Some(3)), task(5, Some(4))]);
    assert_eq!(
        shown,
        "1 a stopped, created by task 2, which is not here\n\
         └─ 2 a stopped\n\
         3 a stopped, created by task 3, which is not here\n\
         5 a stopped, created by task 4, which is not here\n"
    );
}

#[test]
fn long_chains_are_printed() {
    let chain: Vec<_> = (1..=100_000).map(|id| task(id, (id > 1).then_some(id - 1))).collect();
    let shown = text(&chain);
    assert_eq!(shown.lines().count(), 100_000);
    assert!(shown.ends_with("(99999 levels down) 100000 a stopped\n"));
}
