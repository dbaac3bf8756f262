use super::*;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(secs).unwrap()
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn step(number: u32, name: &str, kind: StepKind) -> StepRow {
    StepRow {
        name: name.to_owned(),
        number,
        kind,
        attempt: 1,
        result: None,
        until: None,
        started_at: at(10),
        recorded_at: at(12),
    }
}

fn signal(name: &str, sent_at: i64, timed_out: bool) -> SignalRow {
    SignalRow { name: name.to_owned(), payload: json("\"ada\""), sent_at: at(sent_at), timed_out }
}

fn timeline(steps: Vec<StepRow>, signals: Vec<SignalRow>) -> Vec<StepEntry> {
    step_timeline(&TaskSteps { now: at(100), steps, signals }, TaskStatus::Waiting)
}

fn state(entry: &StepEntry) -> (StepState, Option<Timestamp>) {
    (entry.state, entry.ended_at)
}

#[test]
fn step_has_its_result() {
    let row = StepRow { result: Some(json("[7]")), ..step(1, "charge", StepKind::Step) };
    let entries = timeline(vec![row], Vec::new());
    assert_eq!(state(&entries[0]), (StepState::Recorded, Some(at(12))));
    assert_eq!((entries[0].result.as_ref(), entries[0].children.len()), (Some(&json("[7]")), 0));
}

#[test]
fn sleep_is_over_by_time_or_next_step() {
    let sleep =
        |number, until| StepRow { until: Some(at(until)), ..step(number, "s", StepKind::Sleep) };
    let of = |steps| state(&timeline(steps, Vec::new())[0]);
    assert_eq!(of(vec![sleep(1, 101)]), (StepState::Sleeping, None));
    assert_eq!(of(vec![sleep(1, 100)]), (StepState::Slept, Some(at(100))));
    let next = step(2, "next", StepKind::Step);
    assert_eq!(of(vec![sleep(1, 101), next]), (StepState::Slept, Some(at(101))));
}

#[test]
fn wait_takes_its_own_signal() {
    let wait = step(1, "approved", StepKind::Wait);
    let of = |signals| timeline(vec![wait.clone()], signals).remove(0);
    assert_eq!(state(&of(vec![signal("other", 20, false)])), (StepState::Waiting, None));
    let received = of(vec![signal("approved", 20, false)]);
    assert_eq!(state(&received), (StepState::Received, Some(at(20))));
    assert_eq!(received.result, Some(json("\"ada\"")));
    let early = of(vec![signal("approved", 2, false)]);
    assert_eq!(early.ended_at, Some(at(12)), "not before the wait began");
    let late = of(vec![signal("approved", 50, true)]);
    assert_eq!((state(&late), late.result), ((StepState::TimedOut, Some(at(50))), None));
}

#[test]
fn end_of_call_is_merged() {
    let call = StepRow { result: Some(json("[8,9]")), ..step(1, "square", StepKind::Call) };
    let running = timeline(vec![call.clone()], Vec::new());
    assert_eq!(state(&running[0]), (StepState::Running, None));
    assert_eq!(running[0].children, [TaskId(8), TaskId(9)]);
    let end = StepRow {
        result: Some(json("[1,1]")),
        recorded_at: at(40),
        ..step(2, "square#ended", StepKind::Call)
    };
    let ended = timeline(vec![call, end, step(3, "sum", StepKind::Step)], Vec::new());
    assert_eq!(state(&ended[0]), (StepState::Ended, Some(at(40))));
    let numbers: Vec<_> = ended.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, [1, 3]);
}

#[test]
fn open_step_of_ended_task_is_unfinished() {
    let steps = TaskSteps {
        now: at(100),
        steps: vec![step(1, "charge", StepKind::Step), step(2, "approved", StepKind::Wait)],
        signals: Vec::new(),
    };
    let states = |status| -> Vec<_> {
        step_timeline(&steps, status).iter().map(|entry| entry.state).collect()
    };
    assert_eq!(states(TaskStatus::Waiting), [StepState::Recorded, StepState::Waiting]);
    assert_eq!(states(TaskStatus::Cancelled), [StepState::Recorded, StepState::Unfinished]);
}

#[test]
fn signals_without_wait_are_kept() {
    let steps = TaskSteps {
        now: at(100),
        steps: vec![step(1, "approved", StepKind::Wait), step(2, "paid", StepKind::Step)],
        signals: vec![signal("approved", 20, false), signal("paid", 30, false)],
    };
    let kept: Vec<_> = kept_signals(&steps).map(|signal| signal.name.as_str()).collect();
    assert_eq!(kept, ["paid"]);
}

#[test]
fn tokens_are_those_of_json() {
    for state in StepState::ALL {
        assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
    }
}
