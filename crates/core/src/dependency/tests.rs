use super::*;
use crate::json::Json;

fn task(class: &str) -> NewTask {
    NewTask::new(class, Json::empty_object()).unwrap()
}

fn named(names: &[&str]) -> Flow {
    names.iter().fold(Flow::new(), |flow, name| flow.add(*name, task("a")))
}

#[test]
fn tasks_come_after_their_dependencies() {
    let flow = Flow::new()
        .add("report", task("report"))
        .after_end(["load", "extract"])
        .add("load", task("load"))
        .after("extract")
        .add("extract", task("extract"))
        .after(TaskId(17));
    let flow = flow.resolve().unwrap();
    let names: Vec<_> = flow.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["extract", "load", "report"]);
    let dependency = |on, condition| NewDependency { on, condition };
    assert_eq!(
        flow.tasks[2].dependencies,
        [
            dependency(DependencyRef::InFlow(1), DependencyCondition::End),
            dependency(DependencyRef::InFlow(0), DependencyCondition::End),
        ]
    );
    let existing = DependencyRef::Existing(TaskId(17));
    assert_eq!(flow.tasks[0].dependencies, [dependency(existing, DependencyCondition::Success)]);
    let contexts: Vec<_> = flow.tasks.iter().map(|task| task.task.context.as_str()).collect();
    assert_eq!(
        contexts,
        [
            r#"{"awaited":true,"dependent":true,"flow_task":"extract"}"#,
            r#"{"awaited":true,"dependent":true,"flow_task":"load"}"#,
            r#"{"dependent":true,"flow_task":"report"}"#,
        ]
    );
}

#[test]
fn invalid_flows_are_refused() {
    let refused = |flow: Flow| flow.resolve().unwrap_err().to_string();
    assert_eq!(refused(Flow::new()), "a flow needs a task before its dependencies");
    assert_eq!(refused(Flow::new().after("a")), "a flow needs a task before its dependencies");
    assert_eq!(refused(named(&["a", "a"])), r#"two tasks of the flow have the name "a""#);
    assert_eq!(
        refused(named(&["extract", "load"]).after("extrat")),
        r#"task "load" depends on "extrat", which is no task of the flow; did you mean "extract"?"#
    );
    assert_eq!(
        refused(named(&["a", "b"]).after("a").after_end("a")),
        r#"task "b" depends on "a" under two conditions; use one"#
    );
    assert_eq!(
        refused(named(&["a"]).after("a")),
        "the tasks of the flow wait for each other: a → a"
    );
    let cycle = Flow::new()
        .add("a", task("a"))
        .add("b", task("a"))
        .after(["a", "d"])
        .add("c", task("a"))
        .after("b")
        .add("d", task("a"))
        .after("c");
    assert_eq!(refused(cycle), "the tasks of the flow wait for each other: b → c → d → b");
    let unique = task("a").unique(crate::Unique::by("k")).unwrap();
    assert_eq!(
        refused(Flow::new().add("a", task("a")).add("b", unique).after("a")),
        r#"task "b" has a unique key, and a task with a unique key cannot depend on others"#
    );
    assert_eq!(
        refused(named(&["a\n"])),
        r#"a name in a flow has 1 to 200 bytes and no control characters, not "a\n""#
    );
}

#[test]
fn sizes_are_limited() {
    let flow = (0..=FLOW_TASKS_MAX).fold(Flow::new(), |flow, n| flow.add(n.to_string(), task("a")));
    assert_eq!(flow.resolve().unwrap_err(), InvalidFlow::TooManyTasks(FLOW_TASKS_MAX + 1));
    let roots: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
    let flow = roots.iter().fold(Flow::new(), |flow, name| flow.add(name, task("a")));
    let flow = (0..101).fold(flow, |flow, n| {
        flow.add(format!("x{n}"), task("a"))
            .after(roots.iter().map(String::as_str).collect::<Vec<_>>())
    });
    assert_eq!(flow.resolve().unwrap_err(), InvalidFlow::TooManyDependencies(101_000));
}

#[test]
fn dependents_follow_their_conditions() {
    use DependencyCondition::{End, Failure, Success};
    use DependencyState::{Ended, Open, Removed};
    let stopped = Ended(TaskStatus::Stopped);
    let failed = Ended(TaskStatus::Failed);
    let cancelled = Ended(TaskStatus::Cancelled);
    let next = |states: &[(DependencyCondition, DependencyState)]| {
        let dependencies: Vec<_> = states
            .iter()
            .zip(1..)
            .map(|((condition, state), id)| Dependency {
                id: TaskId(id),
                name: None,
                condition: *condition,
                state: *state,
            })
            .collect();
        match decide_dependent(&dependencies) {
            DependentNext::Wait(id) => format!("wait {id}"),
            DependentNext::Start => "start".to_owned(),
            DependentNext::Cancel(error) => error.message,
        }
    };
    let cases: [(&[_], &str); 15] = [
        (&[(Success, stopped)], "start"),
        (&[(Success, Open)], "wait 1"),
        (&[(Success, failed)], "task 1 failed"),
        (&[(Success, cancelled)], "task 1 was cancelled"),
        (&[(Success, Removed)], "task 1 was removed"),
        (&[(Success, Open), (Success, failed)], "task 2 failed"),
        (&[(Success, stopped), (End, Open)], "wait 2"),
        (&[(End, failed), (End, cancelled), (End, Removed)], "start"),
        (&[(Failure, failed)], "start"),
        (&[(Failure, cancelled)], "start"),
        (&[(Failure, stopped)], "all tasks that it depends on succeeded"),
        (&[(Failure, failed), (Failure, Open)], "wait 2"),
        (&[(Failure, stopped), (Failure, failed)], "start"),
        (&[(Success, stopped), (Failure, failed)], "start"),
        (&[(Success, failed), (Failure, failed)], "task 1 failed"),
    ];
    for (states, expected) in cases {
        assert_eq!(next(states), expected, "{states:?}");
    }
}

#[test]
fn state_of_flow_follows_from_counts() {
    let counts = FlowCounts::default();
    assert_eq!(FlowCounts { stopped: 2, ..counts }.state(), FlowState::Succeeded);
    assert_eq!(FlowCounts { stopped: 2, and_more: true, ..counts }.state(), FlowState::Open);
    assert_eq!(FlowCounts { failed: 1, cancelled: 1, ..counts }.state(), FlowState::Failed);
    assert_eq!(FlowCounts { cancelled: 1, stopped: 1, ..counts }.state(), FlowState::Cancelled);
    assert_eq!(FlowCounts { not_needed: 1, stopped: 1, ..counts }.state(), FlowState::Succeeded);
    assert_eq!(FlowCounts { blocked: 1, failed: 1, ..counts }.state(), FlowState::Open);
}

#[test]
fn batch_is_flow_with_callbacks() {
    let batch = Batch::new()
        .name("render")
        .members(["a", "b"].map(task))
        .on_success(task("done"))
        .on_failure(task("alert"))
        .on_end(task("tidy"));
    let flow = Flow::from(batch).resolve().unwrap();
    assert_eq!(flow.name.as_deref(), Some("render"));
    let names: Vec<_> = flow.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["member 1", "member 2", "on_success", "on_failure", "on_end"]);
    for (place, condition) in [
        (2, DependencyCondition::Success),
        (3, DependencyCondition::Failure),
        (4, DependencyCondition::End),
    ] {
        let on = |place| NewDependency { on: DependencyRef::InFlow(place), condition };
        assert_eq!(flow.tasks[place].dependencies, [on(0), on(1)]);
    }
    let refused = |batch: Batch| Flow::from(batch).resolve().unwrap_err();
    assert_eq!(refused(Batch::new().on_failure(task("alert"))), InvalidFlow::NoMembers);
    let twice = Batch::new().member(task("a")).on_end(task("b")).on_end(task("c"));
    assert_eq!(refused(twice), InvalidFlow::DuplicateName("on_end".to_owned()));
}
