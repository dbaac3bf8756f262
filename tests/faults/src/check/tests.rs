//! Each promise is broken once, to show that its check can fail.

use jiff::{SignedDuration, Timestamp};
use task_engine::Json;
use task_engine_core::dependency::DependencyCondition;
use task_engine_store::export::{DependencyRecord, LateRecord};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn execution(attempt: i32, exception: Option<&str>, ends: Option<TaskStatus>) -> ExecutionRecord {
    ExecutionRecord {
        attempt,
        retry_number: attempt - 1,
        instance_id: Some(1),
        worker: Some(1),
        started_at: Some(at(i64::from(attempt))),
        stopped_at: at(i64::from(attempt)),
        retry_at: None,
        ends_task: ends,
        result: exception.is_none().then(Json::null),
        error: exception
            .map(|name| Json::parse(format!(r#"{{"exception":"{name}","message":""}}"#)).unwrap()),
    }
}

/// A task that was lost once and then done, as it should be.
fn sound() -> Evidence {
    let lost = execution(1, Some("InstanceLost"), None);
    let done = execution(2, None, Some(TaskStatus::Stopped));
    let task = TaskRecord {
        id: 1,
        status: TaskStatus::Stopped,
        class: "Witness".into(),
        queue: "default".into(),
        priority: 0,
        created_at: at(0),
        scheduled_at: at(0),
        parameters: Json::empty_object(),
        context: Json::empty_object(),
        has_unique_key: false,
        waiting: None,
        running: None,
        executions: vec![lost, done],
        late_results: vec![],
        progress: vec![],
        logs: vec![],
        cancellations: vec![],
        steps: vec![],
        signals: vec![],
        depends_on: vec![],
        dependencies: vec![],
        reopened: vec![],
        suspended: None,
    };
    let instance = InstanceRecord {
        id: 1,
        name: "a".into(),
        host: "h".into(),
        pid: 7,
        version: String::new(),
        workers: 1,
        lease_ms: 1000,
        queues: vec![],
        pools: vec![],
        classes: BTreeMap::new(),
        started_at: at(0),
        heartbeat_at: at(1),
        stopped_at: None,
        lost_at: Some(at(3)),
    };
    let mut evidence = Evidence {
        acks: BTreeSet::from([1]),
        witness: Witness::read("begin 1 1 7 100\nbegin 1 2 8 200\nend 1 2 8 300\n"),
        ..Evidence::default()
    };
    evidence.history.tasks.insert(1, task);
    evidence.history.instances.insert(1, instance);
    evidence
}

fn task(evidence: &mut Evidence) -> &mut TaskRecord {
    evidence.history.tasks.get_mut(&1).unwrap()
}

fn finds(promise: &str, spoil: impl Fn(&mut Evidence)) {
    let mut evidence = sound();
    spoil(&mut evidence);
    let broken = broken(&evidence);
    assert!(broken.iter().any(|words| words.starts_with(promise)), "{promise}: {broken:?}");
}

#[test]
fn sound_history_passes() {
    assert_eq!(broken(&sound()), Vec::<String>::new());
}

#[test]
fn lost_task_is_found() {
    finds("I1:", |e| e.acks.extend([2]));
    finds("I8:", |e| task(e).status = TaskStatus::Running);
}

#[test]
fn second_end_is_found_unless_requested() {
    finds("I2:", |e| task(e).executions[0].ends_task = Some(TaskStatus::Failed));
    finds("I2:", |e| e.verify.push("task 1 is nowhere".into()));
    let mut asked = sound();
    task(&mut asked).executions[0].ends_task = Some(TaskStatus::Failed);
    asked.requeued.insert(1, 1);
    assert_eq!(broken(&asked), Vec::<String>::new());
}

#[test]
fn changed_end_is_found() {
    finds("I2:", |e| {
        let mut before = e.history.clone();
        before.tasks.get_mut(&1).unwrap().executions[1].worker = Some(9);
        e.before.push(before);
    });
}

#[test]
fn unwitnessed_success_is_found() {
    finds("I3:", |e| e.witness = Witness::read("begin 1 1 7 100\nbegin 1 2 8 200\n"));
}

#[test]
fn overlapping_attempts_are_found() {
    // The first engine was alive: it sent a heartbeat just before it was declared lost.
    finds("I4:", |e| e.history.instances.get_mut(&1).unwrap().heartbeat_at = at(3));
    finds("I4:", |e| {
        task(e).executions[0] = execution(1, Some("Asked"), None);
        e.witness =
            Witness::read("begin 1 1 7 100\nbegin 1 2 8 200\nend 1 2 8 300\nend 1 1 7 250\n");
    });
    // It was alive, but its process was killed before: no overlap.
    let mut killed = sound();
    killed.history.instances.get_mut(&1).unwrap().heartbeat_at = at(3);
    killed.dead.insert(7, Some(150));
    assert_eq!(broken(&killed), Vec::<String>::new());
    killed.dead.insert(7, Some(250));
    assert!(broken(&killed)[0].starts_with("I4:"));
}

#[test]
fn late_result_without_end_is_found() {
    finds("I5:", |e| {
        task(e).late_results.push(LateRecord {
            attempt: 3,
            arrived_at: at(9),
            result: None,
            error: None,
        });
    });
}

#[test]
fn extra_attempt_is_found() {
    finds("I6:", |e| task(e).context = Json::parse(r#"{"retry":{"maximum":0}}"#).unwrap());
}

#[test]
fn attempt_gap_is_found() {
    finds("I7:", |e| drop(task(e).executions.remove(0)));
    finds("I7:", |e| e.witness.take("begin 1 3 8 400"));
}

#[test]
fn duplicate_open_key_is_found() {
    let key = || Json::parse(r#"{"unique_key":"k"}"#).unwrap();
    let second = |began: i64| {
        let mut evidence = sound();
        task(&mut evidence).context = key();
        let mut other = task(&mut evidence).clone();
        other.id = 2;
        evidence.history.tasks.insert(2, other);
        evidence.dead.insert(7, None);
        for (attempt, began) in [(1, began), (2, began + 10)] {
            evidence.witness.take(&format!("begin 2 {attempt} 9 {began}"));
            evidence.witness.take(&format!("end 2 {attempt} 9 {}", began + 5));
        }
        broken(&evidence)
    };
    assert_eq!(second(300), Vec::<String>::new());
    assert!(second(299).iter().any(|words| words.starts_with("I9:")));
}

#[test]
fn exceeded_worker_limit_is_found() {
    finds("I9:", |e| {
        e.workers.insert(8, 1);
        e.witness =
            Witness::read("begin 1 1 8 100\nbegin 1 2 8 200\nend 1 2 8 300\nend 1 1 8 300\n");
    });
}

/// Tasks 1 and 2 of a customer, with a named limit. The first attempt of task 1 was lost with
/// its engine, whose process was suspended at 150.
fn limited(context: &str, lines: &[String]) -> Evidence {
    let mut evidence = sound();
    evidence.limited = true;
    evidence.suspended.insert(7, vec![(150, 1_000_000)]);
    task(&mut evidence).context = Json::parse(context).unwrap();
    task(&mut evidence).parameters = Json::parse(r#"{"customer":"acme"}"#).unwrap();
    for id in 2..=20 {
        let mut other = task(&mut evidence).clone();
        other.id = id;
        other.executions = vec![execution(1, None, Some(TaskStatus::Stopped))];
        evidence.history.tasks.insert(id, other);
    }
    for line in lines {
        evidence.witness.take(line);
    }
    evidence
        .history
        .tasks
        .retain(|id, _| evidence.witness.attempts.keys().any(|(witnessed, _)| witnessed == id));
    evidence
}

fn ran(id: i64, from: i64, until: i64) -> [String; 2] {
    [format!("begin {id} 1 9 {from}"), format!("end {id} 1 9 {until}")]
}

#[test]
fn exceeded_limit_is_found() {
    let running = |others: &[(i64, i64, i64)]| {
        let lines: Vec<String> =
            others.iter().flat_map(|(id, from, until)| ran(*id, *from, *until)).collect();
        broken(&limited("{}", &lines))
    };
    // Attempt 1 of task 1 ran from 100 until its engine was suspended at 150, attempt 2 from
    // 200 to 300.
    assert_eq!(running(&[(2, 120, 160), (3, 150, 300)]), Vec::<String>::new());
    assert_eq!(running(&[(2, 300, 400), (3, 300, 400)]), Vec::<String>::new());
    assert!(running(&[(2, 120, 160), (3, 149, 160)])[0].starts_with("I17:"));
    assert!(running(&[(2, 250, 400), (3, 299, 400)])[0].starts_with("I17:"));
}

#[test]
fn exceeded_rate_is_found() {
    let started = |spacing: i64| {
        let lines: Vec<String> = (2..=20)
            .flat_map(|id| ran(id, 2_000_000 + id * spacing, 2_000_000 + id * spacing + 10))
            .collect();
        broken(&limited(r#"{"limits":{"rated":"api"}}"#, &lines))
    };
    assert_eq!(started(200_000), Vec::<String>::new());
    assert!(started(180_000)[0].starts_with("I18:"));
}

#[test]
fn wrong_order_is_found() {
    let ordered = |lines: &[String]| broken(&limited(r#"{"limits":{"ordered":"a"}}"#, lines));
    assert_eq!(ordered(&ran(2, 300, 310)), Vec::<String>::new());
    assert!(ordered(&ran(2, 290, 310))[0].starts_with("I19:"));
    assert!(ordered(&ran(2, 180, 190))[0].starts_with("I19:"), "between two attempts of task 1");
}

/// Task 2, which depends on task 1 under this condition, and has these attempts. Those with an
/// engine were witnessed, one after the other from `began` on.
fn dependent(condition: &str, began: i64, executions: Vec<ExecutionRecord>) -> Evidence {
    let mut evidence = sound();
    let mut other = task(&mut evidence).clone();
    other.id = 2;
    let condition = DependencyCondition::from_token(condition).unwrap();
    other.dependencies = vec![DependencyRecord { on: 1, condition }];
    other.status = executions.last().unwrap().ends_task.unwrap();
    for (one, began) in executions.iter().zip((began..).step_by(100)) {
        if one.instance_id.is_some() {
            let attempt = one.attempt;
            evidence.witness.take(&format!("begin 2 {attempt} 9 {began}"));
            evidence.witness.take(&format!("end 2 {attempt} 9 {}", began + 50));
        }
    }
    other.executions = executions;
    evidence.history.tasks.insert(2, other);
    evidence
}

/// An attempt of a task that was cancelled while it was blocked.
fn cancelled(attempt: i32, exception: &str) -> ExecutionRecord {
    let instance_id = None;
    let started_at = None;
    let execution = execution(attempt, Some(exception), Some(TaskStatus::Cancelled));
    ExecutionRecord { instance_id, started_at, ..execution }
}

/// Task 1 fails in its second attempt instead of succeeding.
fn first_fails(mut evidence: Evidence) -> Evidence {
    let first = task(&mut evidence);
    first.executions[1] = execution(2, Some("Error"), Some(TaskStatus::Failed));
    first.status = TaskStatus::Failed;
    evidence
}

#[track_caller]
fn breaks(promise: &str, evidence: &Evidence) {
    let broken = broken(evidence);
    assert!(broken.len() == 1 && broken[0].starts_with(promise), "{promise}: {broken:?}");
}

#[test]
fn sound_flows_pass() {
    let done = || vec![execution(1, None, Some(TaskStatus::Stopped))];
    // Task 1 ends at 300.
    for condition in ["success", "end"] {
        assert_eq!(broken(&dependent(condition, 300, done())), Vec::<String>::new());
    }
    let not_needed = dependent("failure", 300, vec![cancelled(1, "NotNeeded")]);
    assert_eq!(broken(&not_needed), Vec::<String>::new());
    for condition in ["failure", "end"] {
        let started = first_fails(dependent(condition, 300, done()));
        assert_eq!(broken(&started), Vec::<String>::new());
    }
    let lost = vec![cancelled(1, "DependencyFailed")];
    assert_eq!(broken(&first_fails(dependent("success", 300, lost))), Vec::<String>::new());
}

#[test]
fn early_start_of_dependent_is_found() {
    let done = || vec![execution(1, None, Some(TaskStatus::Stopped))];
    for condition in ["success", "end"] {
        breaks("I20: attempt 1 of task 2 began 1 µs", &dependent(condition, 299, done()));
    }
    // The end of an attempt that was lost is not the end of the task.
    breaks("I20: attempt 1 of task 2 began", &dependent("success", 250, done()));
}

#[test]
fn dependent_that_never_started_is_found() {
    breaks("I20: task 2 never", &dependent("success", 300, vec![cancelled(1, "Cancelled")]));
    breaks("I20: task 2 never", &dependent("end", 300, vec![cancelled(1, "DependencyFailed")]));
    let failed = first_fails(dependent("failure", 300, vec![cancelled(1, "NotNeeded")]));
    breaks("I20: task 2 never", &failed);
}

#[test]
fn wrong_start_or_cancellation_of_dependent_is_found() {
    let done = || vec![execution(1, None, Some(TaskStatus::Stopped))];
    breaks("I20: task 2 started", &dependent("failure", 300, done()));
    breaks("I20: task 2 started", &first_fails(dependent("success", 300, done())));
    let wrong = dependent("failure", 300, vec![cancelled(1, "DependencyFailed")]);
    breaks("I20: task 2 ended with", &wrong);
    let wrong = first_fails(dependent("success", 300, vec![cancelled(1, "NotNeeded")]));
    breaks("I20: task 2 ended with", &wrong);
}

#[test]
fn second_run_of_dependent_is_found() {
    let done = |attempt| execution(attempt, None, Some(TaskStatus::Stopped));
    let again = |first: ExecutionRecord| {
        let mut evidence = dependent("end", 300, vec![first, done(2)]);
        evidence.requeued.insert(2, 1);
        evidence
    };
    for exception in ["InstanceLost", "EngineStopped", "NeverStarted"] {
        assert_eq!(broken(&again(execution(1, Some(exception), None))), Vec::<String>::new());
    }
    let failed = execution(1, Some("Error"), Some(TaskStatus::Failed));
    assert_eq!(broken(&again(failed)), Vec::<String>::new(), "an operator has retried it");
    breaks("I21: task 2 ran again", &again(done(1)));
    breaks("I21: task 2 ran again", &again(execution(1, Some("Error"), None)));
}
