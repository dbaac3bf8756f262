//! Each promise about durable tasks is broken once, to show that its check can fail.

use jiff::SignedDuration;
use task_engine_core::step::{StepKind, StepRow};
use task_engine_store::export::ExecutionRecord;

use super::*;
use crate::check::broken;
use crate::witness::Witness;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn execution(attempt: i32, result: Option<u64>) -> ExecutionRecord {
    let snoozed = json(r#"{"exception":"Snoozed","message":""}"#);
    ExecutionRecord {
        attempt,
        retry_number: 0,
        instance_id: None,
        worker: None,
        started_at: Some(at(1)),
        stopped_at: at(2),
        retry_at: None,
        ends_task: result.map(|_| TaskStatus::Stopped),
        result: result.map(|number| Json::encode(&number).unwrap()),
        error: result.is_none().then_some(snoozed),
    }
}

fn record(id: i64, class: &str, context: &str, executions: Vec<ExecutionRecord>) -> TaskRecord {
    TaskRecord {
        id,
        status: TaskStatus::Stopped,
        class: class.into(),
        queue: "default".into(),
        priority: 0,
        created_at: at(0),
        scheduled_at: at(0),
        parameters: Json::empty_object(),
        context: json(context),
        has_unique_key: false,
        waiting: None,
        running: None,
        executions,
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
    }
}

fn line(task: i64, attempt: i32, second: i64, event: StepEvent) -> StepLine {
    StepLine { task, attempt, time_us: second * 1_000_000, clock: at(second), event }
}

fn code(task: i64, attempt: i32, second: i64, step: &str, value: &str) -> [StepLine; 3] {
    let (step, value) = (|| step.to_owned(), || value.to_owned());
    [
        line(task, attempt, second, StepEvent::CodeStarted { step: step() }),
        line(task, attempt, second, StepEvent::CodeEnded { step: step(), value: value() }),
        line(task, attempt, second, StepEvent::Received { step: step(), value: value() }),
    ]
}

fn stored(name: &str, kind: StepKind, value: Option<&str>, until: Option<Timestamp>) -> StepRow {
    StepRow {
        name: name.into(),
        number: 1,
        kind,
        attempt: 1,
        result: value.map(|value| Json::encode(&value).unwrap()),
        until,
        started_at: at(0),
        recorded_at: at(0),
    }
}

/// Task 1 is the parent of the tasks 2 to 4. Its first attempt began at 10 s, received step
/// one, slept until 20 s and received its signal; its second one began at 50 s, after the
/// children.
fn sound() -> Evidence {
    let mut evidence = Evidence::default();
    let mut witness = "begin 1 1 7 10000000\nend 1 1 7 30000000\n".to_owned();
    witness += "begin 1 2 7 50000000\nend 1 2 7 60000000\n";
    let mut lines: Vec<StepLine> = code(1, 1, 11, "one", "v").into();
    lines.push(line(1, 1, 20, StepEvent::Slept));
    lines.push(line(1, 1, 21, StepEvent::Signal { payload: Some("yes".into()) }));
    lines.push(line(1, 2, 51, StepEvent::Received { step: "one".into(), value: "v".into() }));
    lines.push(line(1, 2, 52, StepEvent::Slept));
    lines.push(line(1, 2, 53, StepEvent::Signal { payload: Some("yes".into()) }));
    lines.push(line(1, 2, 54, StepEvent::Children { results: vec![2, 3, 4] }));
    for step in &STEPS[1..] {
        lines.extend(code(1, 2, 55, step, "v"));
    }
    let mut steps: Vec<StepRow> =
        STEPS.iter().map(|name| stored(name, StepKind::Step, Some("v"), None)).collect();
    steps.push(stored(SLEEP, StepKind::Sleep, None, Some(at(20))));
    steps.push(stored(SIGNAL, StepKind::Wait, None, Some(at(40))));
    let of_task = |steps| TaskSteps { now: at(0), steps, signals: vec![] };
    evidence.durable.stored.insert(1, of_task(steps));
    let parent = record(1, Process::CLASS, "{}", vec![execution(1, None), execution(2, Some(9))]);
    evidence.history.tasks.insert(1, parent);
    for child in 2..=4 {
        witness += &format!("begin {child} 1 7 40000000\nend {child} 1 7 45000000\n");
        lines.extend(code(child, 1, 41, "work", "v"));
        let steps = vec![stored("work", StepKind::Step, Some("v"), None)];
        evidence.durable.stored.insert(child, of_task(steps));
        let executions = vec![execution(1, Some(child.unsigned_abs()))];
        let child_record = record(child, Part::CLASS, r#"{"parent_id":1}"#, executions);
        evidence.history.tasks.insert(child, child_record);
    }
    evidence.witness = Witness::read(&witness);
    evidence.durable.steps = lines;
    evidence.durable.signals = vec![
        sent("yes", SignalState::Sending),
        sent("yes", SignalState::Accepted),
        sent("no", SignalState::Refused),
    ];
    evidence
}

fn sent(payload: &str, state: SignalState) -> SignalLine {
    SignalLine { task: 1, payload: payload.into(), state }
}

/// Replaces the signal that both attempts received.
fn receive(evidence: &mut Evidence, received: Option<&str>) {
    for line in &mut evidence.durable.steps {
        if let StepEvent::Signal { payload } = &mut line.event {
            *payload = received.map(str::to_owned);
        }
    }
}

fn add(evidence: &mut Evidence, attempt: i32, second: i64, event: StepEvent) {
    evidence.durable.steps.push(line(1, attempt, second, event));
}

fn remove(evidence: &mut Evidence, is_it: impl Fn(&StepLine) -> bool) {
    evidence.durable.steps.retain(|line| !is_it(line));
}

fn finds(expected: &str, spoil: impl Fn(&mut Evidence)) {
    let mut evidence = sound();
    spoil(&mut evidence);
    let broken = broken(&evidence);
    let is_it = |words: &String| {
        let (promise, part) = expected.split_once(": ").unwrap();
        words.starts_with(promise) && words.contains(part)
    };
    assert!(broken.iter().any(is_it), "{expected}: {broken:#?}");
}

#[test]
fn sound_durable_history_passes() {
    assert_eq!(broken(&sound()), Vec::<String>::new());
}

#[test]
fn changed_step_value_is_found() {
    let received = |value: &str| StepEvent::Received { step: "one".into(), value: value.into() };
    finds("I13: returned different values", |e| add(e, 2, 55, received("w")));
    finds("I13: which its code never did", |e| {
        remove(e, |line| matches!(&line.event, StepEvent::CodeEnded { step, .. } if step == "one"));
    });
    finds("I13: which is not recorded", |e| drop(e.durable.stored.remove(&1)));
    finds("I13: did not return in the last attempt", |e| {
        remove(e, |line| line.attempt == 2 && line.event == received("v"));
    });
}

#[test]
fn repeated_step_code_is_found() {
    let started = || StepEvent::CodeStarted { step: "one".into() };
    finds("I13: its code ran in a later attempt", |e| add(e, 2, 51, started()));
    // A zombie: its attempt began before the step was received.
    let mut zombie = sound();
    add(&mut zombie, 1, 51, started());
    assert_eq!(broken(&zombie), Vec::<String>::new());
    // Its attempt was claimed before, and its code began after attempt 2 received the step.
    let of_one = |line: &StepLine| {
        let received = matches!(&line.event, StepEvent::Received { step, .. } if step == "one");
        line.task == 1 && (line.attempt == 1 || received)
    };
    remove(&mut zombie, of_one);
    zombie.durable.steps.extend(code(1, 2, 51, "one", "v"));
    zombie.witness.attempts.get_mut(&(1, 1)).unwrap().began = 55_000_000;
    add(&mut zombie, 1, 56, started());
    let broken = broken(&zombie);
    assert!(!broken.iter().any(|words| words.starts_with("I13")), "{broken:#?}");
}

#[test]
fn wrong_signal_is_found() {
    finds("I14: received different signals", |e| {
        add(e, 1, 22, StepEvent::Signal { payload: Some("no".into()) });
    });
    finds("I14: ended without a signal", |e| {
        remove(e, |line| line.attempt == 2 && matches!(line.event, StepEvent::Signal { .. }));
    });
    finds("I14: several accepted signals", |e| {
        e.durable.signals.push(sent("also", SignalState::Accepted));
    });
    finds("I14: \"yes\" was accepted", |e| receive(e, None));
    finds("I14: \"yes\" was accepted", |e| receive(e, Some("no")));
    finds("I14: never sent", |e| e.durable.signals.clear());
    for state in [SignalState::Refused, SignalState::RolledBack] {
        finds("I14: refused or rolled back", |e| e.durable.signals = vec![sent("yes", state)]);
    }
}

#[test]
fn early_timeout_is_found() {
    let timed_out = |deadline: i64| {
        let mut evidence = sound();
        evidence.durable.signals.clear();
        receive(&mut evidence, None);
        let steps = &mut evidence.durable.stored.get_mut(&1).unwrap().steps;
        steps.last_mut().unwrap().until = Some(at(deadline));
        broken(&evidence)
    };
    assert_eq!(timed_out(21), Vec::<String>::new());
    assert!(timed_out(22)[0].starts_with("I14: task 1 timed out"));
}

#[test]
fn signal_of_killed_sender_passes() {
    let mut unknown = sound();
    unknown.durable.signals = vec![sent("yes", SignalState::Sending)];
    assert_eq!(broken(&unknown), Vec::<String>::new());
}

#[test]
fn early_end_of_sleep_is_found() {
    finds("I15: woke up", |e| add(e, 1, 19, StepEvent::Slept));
    finds("I15: did not wake up", |e| {
        remove(e, |line| line.attempt == 2 && line.event == StepEvent::Slept);
    });
}

#[test]
fn wrong_children_are_found() {
    finds("I16: has 2 children", |e| drop(e.history.tasks.remove(&4)));
    finds("I16: has 4 children", |e| {
        let mut child = e.history.tasks[&4].clone();
        child.id = 5;
        e.history.tasks.insert(5, child);
    });
    finds("I16: has the result", |e| {
        e.history.tasks.get_mut(&1).unwrap().executions[1] = execution(2, Some(8));
    });
    finds("I16: received", |e| add(e, 1, 54, StepEvent::Children { results: vec![2, 3] }));
    finds("I16: continued before its child 2", |e| {
        add(e, 1, 44, StepEvent::Children { results: vec![2, 3, 4] });
    });
}

#[test]
fn failed_durable_task_is_found() {
    finds("I8: not stopped", |e| {
        e.history.tasks.get_mut(&1).unwrap().status = TaskStatus::Failed;
    });
}
