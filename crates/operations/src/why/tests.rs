use super::*;
use crate::limits::SuspendedFor;
use task_engine_core::attempt::{AttemptId, TaskError};
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::limit::{Holder, Limit, LimitId, LimitKeyUsage, LimitOptions, LimitRow};
use task_engine_core::step::StepKind;
use task_engine_core::task::TaskId;
use task_engine_core::task::{TaskOptions, TaskRow};
use task_engine_store::activity::HeldAttempt;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + secs).unwrap()
}

fn task(status: TaskStatus, due_secs: i64, retry_number: i32) -> TaskDetails {
    TaskDetails {
        row: TaskRow {
            id: TaskId(7),
            status,
            class: "mail".into(),
            queue: "default".into(),
            priority: 0,
            created_at: at(-100),
            scheduled_at: at(due_secs),
            updated_at: at(-50),
            attempts: retry_number,
            retry_number,
            instance: None,
            error: (retry_number > 0).then(|| TaskError::new("E", "m")),
            is_blocked: false,
        },
        parameters: Json::empty_object(),
        context: Json::empty_object(),
        executions: Vec::new(),
        cancel_requested: false,
        late_results: Vec::new(),
        correlation_id: "7".into(),
        parent_id: None,
    }
}

fn engine(id: i64, age_secs: u64, class: &str, pools: &[(&str, i32, Option<i32>)]) -> InstanceRow {
    let pools: Vec<_> = pools
        .iter()
        .map(|(queue, workers, lowest_priority)| Pool {
            queues: vec![(*queue).to_owned()],
            workers: *workers,
            lowest_priority: *lowest_priority,
            classes: None,
        })
        .collect();
    InstanceRow {
        id: InstanceId(id),
        name: format!("e{id}"),
        host: "h".into(),
        pid: 1,
        process: None,
        version: String::new(),
        workers: pools.iter().map(|pool| pool.workers).sum(),
        queues: pools.iter().flat_map(|pool| pool.queues.clone()).collect(),
        pools,
        classes: [(class.to_owned(), TaskOptions::default())].into(),
        started_at: at(-1000),
        heartbeat_at: at(-i64::try_from(age_secs).unwrap()),
        heartbeat_age: Duration::from_secs(age_secs),
        lease: Duration::from_secs(30),
        stopped_at: None,
        lost_at: None,
        held: 0,
        process_gone: false,
    }
}

fn held(id: i64, queue: &str, priority: i32, since: i64) -> HeldAttempt {
    HeldAttempt {
        task_id: TaskId(100 + id),
        attempt: 1,
        class: "mail".into(),
        queue: queue.into(),
        priority,
        instance_id: InstanceId(id),
        claimed_at: at(since),
        progress: None,
    }
}

fn activity(held: Vec<HeldAttempt>) -> Activity {
    Activity { now: at(0), newest: None, held, next: Vec::new() }
}

struct Case {
    task: TaskDetails,
    engines: Vec<InstanceRow>,
    held: Vec<HeldAttempt>,
    paused: Option<PausedQueue>,
    position: Option<QueuePosition>,
    endings: Vec<EndingRow>,
    table_locks: Vec<BlockingSession>,
    open_steps: Vec<StepEntry>,
    open_children: OpenChildren,
    dependencies: TaskDependencies,
    limits: Vec<TaskLimit>,
    waiting_holders: Vec<WaitingHolder>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            task: task(TaskStatus::Waiting, -1, 0),
            engines: vec![engine(1, 1, "mail", &[("default", 2, None)])],
            held: Vec::new(),
            paused: None,
            position: None,
            endings: Vec::new(),
            table_locks: Vec::new(),
            open_steps: Vec::new(),
            open_children: OpenChildren::default(),
            dependencies: TaskDependencies::default(),
            limits: Vec::new(),
            waiting_holders: Vec::new(),
        }
    }
}

impl Case {
    fn reasons(&self) -> Vec<Reason> {
        reasons(&TaskFacts {
            task: &self.task,
            activity: &activity(self.held.clone()),
            engines: &self.engines,
            paused: self.paused.as_ref(),
            position: self.position.as_ref(),
            endings: &self.endings,
            table_locks: &self.table_locks,
            open_steps: &self.open_steps,
            open_children: &self.open_children,
            dependencies: &self.dependencies,
            limits: &self.limits,
            waiting_holders: &self.waiting_holders,
        })
    }
}

fn position(counted: i64, and_more: bool) -> Option<QueuePosition> {
    Some(QueuePosition { tasks: BoundedCount { counted, and_more }, locked_by: None })
}

fn ending(instance: i64, ago_secs: i64) -> EndingRow {
    EndingRow {
        task_id: TaskId(1000 + ago_secs),
        attempt: 1,
        class: "mail".into(),
        queue: "default".into(),
        instance_id: Some(InstanceId(instance)),
        instance: None,
        started_at: None,
        stopped_at: at(-ago_secs),
        ends_task: Some(TaskStatus::Stopped),
        retry_at: None,
        error: None,
    }
}

fn paused() -> PausedQueue {
    PausedQueue { queue: "default".into(), reason: Some("why".into()), paused_at: at(-5) }
}

fn queue_paused() -> Reason {
    Reason::QueuePaused { queue: "default".into(), since: at(-5), because: Some("why".into()) }
}

fn knows(id: i64, name: &str) -> Vec<EngineOffer> {
    vec![EngineOffer { instance: format!("e{id}"), names: vec![name.into()] }]
}

#[test]
fn reasons_follow_from_facts() {
    let no_engine = |secs| Reason::NoEngine { last_seen: Some(at(secs)) };
    let behind = |counted, and_more, estimated_secs| Reason::Behind {
        ahead: BoundedCount { counted, and_more },
        estimated_secs,
    };
    let busy = |workers, since| Reason::WorkersBusy { workers, oldest_since: Some(at(since)) };
    let not_due = Reason::NotDue { due_at: at(60) };
    let retry = |of| Reason::Retry { retry: 3, of, due_at: at(60), error: Some("E: m".into()) };
    let reserved = || vec![engine(1, 1, "mail", &[("default", 2, Some(5))])];
    let other_pools = || vec![engine(1, 1, "mail", &[("default", 1, None), ("slow", 3, None)])];
    for (name, case, expected) in [
        ("nothing", Case::default(), vec![Reason::Ready { within_secs: 10.0 }]),
        (
            "not due",
            Case { task: task(TaskStatus::Waiting, 60, 0), ..Case::default() },
            vec![not_due.clone()],
        ),
        (
            "a retry, with the rule of its class",
            Case { task: task(TaskStatus::Waiting, 60, 3), ..Case::default() },
            vec![retry(Some(TaskOptions::default().retry.maximum))],
        ),
        (
            "a retry without an engine that has the rule",
            Case { task: task(TaskStatus::Waiting, 60, 3), engines: vec![], ..Case::default() },
            vec![retry(None), Reason::NoEngine { last_seen: None }],
        ),
        (
            "a retry that is due is a task that is due",
            Case { task: task(TaskStatus::Waiting, -1, 3), ..Case::default() },
            vec![Reason::Ready { within_secs: 10.0 }],
        ),
        (
            "a paused queue is all that matters",
            Case {
                paused: Some(paused()),
                position: position(3, false),
                held: vec![held(1, "default", 0, -9); 2],
                ..Case::default()
            },
            vec![queue_paused()],
        ),
        (
            "not due, paused, no engine: in this order",
            Case {
                task: task(TaskStatus::Waiting, 60, 0),
                paused: Some(paused()),
                engines: vec![engine(1, 31, "mail", &[("default", 2, None)])],
                ..Case::default()
            },
            vec![not_due.clone(), queue_paused(), no_engine(-31)],
        ),
        (
            "a class without a handler",
            Case {
                engines: vec![
                    engine(1, 31, "mail", &[("default", 2, None)]),
                    engine(2, 1, "other", &[("default", 2, None)]),
                ],
                ..Case::default()
            },
            vec![Reason::UnknownClass { class: "mail".into(), engines: knows(2, "other") }],
        ),
        (
            "a queue that no engine with a handler serves",
            Case {
                engines: vec![
                    engine(1, 1, "mail", &[("slow", 2, None)]),
                    engine(2, 1, "other", &[("default", 2, None)]),
                ],
                ..Case::default()
            },
            vec![Reason::QueueNotServed { queue: "default".into(), engines: knows(1, "slow") }],
        ),
        (
            "only workers for higher priorities",
            Case { engines: reserved(), ..Case::default() },
            vec![Reason::PriorityTooLow { priority: 0, lowest: 5, engines: vec!["e1".into()] }],
        ),
        (
            "all busy, and other tasks ahead",
            Case {
                held: vec![held(1, "default", 0, -9), held(1, "default", 0, -30)],
                position: position(100_000, true),
                ..Case::default()
            },
            vec![busy(2, -30), behind(100_000, true, None)],
        ),
        (
            "one is free",
            Case { held: vec![held(1, "default", 0, -9)], ..Case::default() },
            vec![Reason::Ready { within_secs: 10.0 }],
        ),
        (
            "workers of other engines and pools do not count",
            Case {
                engines: other_pools(),
                held: vec![held(1, "slow", 0, -9), held(2, "default", 0, -9)],
                ..Case::default()
            },
            vec![Reason::Ready { within_secs: 10.0 }],
        ),
        (
            "the pool of its queue is busy, another is not",
            Case {
                engines: other_pools(),
                held: vec![held(1, "default", 0, -9)],
                ..Case::default()
            },
            vec![busy(1, -9)],
        ),
        (
            "the estimate uses the rate of candidate engines",
            Case {
                position: position(50, false),
                endings: vec![
                    ending(1, 10),
                    ending(1, 5),
                    ending(1, 3),
                    ending(1, 1),
                    ending(2, 1),
                ],
                ..Case::default()
            },
            vec![behind(50, false, Some(125.0))],
        ),
        (
            "few or old endings give no estimate",
            Case {
                position: position(50, false),
                endings: vec![ending(1, 301), ending(1, 302), ending(1, 303), ending(1, 1)],
                ..Case::default()
            },
            vec![behind(50, false, None)],
        ),
    ] {
        assert_eq!(case.reasons(), expected, "{name}");
    }
}

fn open_step(name: &str, state: StepState, children: &[i64]) -> StepEntry {
    StepEntry {
        number: 1,
        name: name.to_owned(),
        kind: StepKind::Step,
        state,
        started_at: at(-9),
        ended_at: None,
        until: (state != StepState::Running).then(|| at(60)),
        attempt: 1,
        result: None,
        children: children.iter().copied().map(TaskId).collect(),
    }
}

#[test]
fn suspended_task_names_its_step() {
    let task = |due| Case { task: task(TaskStatus::Waiting, due, 0), ..Case::default() };
    let waits = open_step("approved", StepState::Waiting, &[]);
    let mut case = Case { open_steps: vec![waits], ..task(60) };
    let signal =
        Reason::WaitingForSignal { task_id: TaskId(7), signal: "approved".into(), until: at(60) };
    assert_eq!(case.reasons(), std::slice::from_ref(&signal));
    case.paused = Some(paused());
    assert_eq!(case.reasons(), [signal, queue_paused()]);
    let sleeps = open_step("cooldown", StepState::Sleeping, &[]);
    let case = Case { open_steps: vec![sleeps.clone()], ..task(60) };
    assert_eq!(case.reasons(), [Reason::Sleeping { step: "cooldown".into(), until: at(60) }]);
    let case = Case { open_steps: vec![sleeps], ..task(-1) };
    assert_eq!(case.reasons(), [Reason::Ready { within_secs: 10.0 }], "it was woken");
}

#[test]
fn children_of_open_calls_are_counted() {
    let some = vec![OpenChild { id: TaskId(12), status: TaskStatus::Waiting }];
    let number = BoundedCount { counted: 1, and_more: false };
    let case = Case {
        task: task(TaskStatus::Waiting, 60, 0),
        open_steps: vec![
            open_step("square", StepState::Running, &[10, 11]),
            open_step("square#2", StepState::Running, &[12]),
        ],
        open_children: OpenChildren { number, some: some.clone() },
        ..Case::default()
    };
    assert_eq!(case.reasons(), [Reason::WaitingForChildren { children: 3, open: number, some }]);
}

#[test]
fn task_lock_is_a_reason() {
    let locker = BlockingSession { pid: 4, ..BlockingSession::default() };
    let case = Case {
        position: Some(QueuePosition {
            tasks: BoundedCount::default(),
            locked_by: Some(locker.clone()),
        }),
        ..Case::default()
    };
    assert_eq!(case.reasons(), [Reason::Locked(locker)]);
}

#[test]
fn table_lock_is_a_reason() {
    let locks = vec!["waiting_tasks (ShareRowExclusiveLock)".to_owned()];
    let session = BlockingSession { pid: 4, locks, ..BlockingSession::default() };
    let mut case = Case { table_locks: vec![session.clone()], ..Case::default() };
    let locked = Reason::Locked(session);
    assert_eq!(case.reasons(), std::slice::from_ref(&locked));
    case.task = task(TaskStatus::Running, -1, 0);
    assert_eq!(case.reasons()[1..], [locked]);
    case.task = task(TaskStatus::Waiting, 60, 0);
    assert_eq!(case.reasons(), [Reason::NotDue { due_at: at(60) }]);
}

#[test]
fn running_task_names_its_engine() {
    let mut case = Case { task: task(TaskStatus::Running, -1, 0), ..Case::default() };
    case.task.row.instance = Some("e1".into());
    let mut mine = held(1, "default", 0, -50);
    mine.task_id = TaskId(7);
    case.held = vec![mine];
    // A later instance of the same name.
    case.engines[0].lost_at = Some(at(-1));
    let mut later = engine(1, 2, "mail", &[("default", 2, None)]);
    later.id = InstanceId(9);
    case.engines.insert(0, later);
    let reasons = case.reasons();
    let [Reason::Running { instance, since, heartbeat_age_secs, engine_is_alive, .. }] =
        &reasons[..]
    else {
        panic!("it runs: {reasons:?}")
    };
    assert_eq!((instance.as_deref(), *since), (Some("e1"), at(-50)));
    assert_eq!((*heartbeat_age_secs, *engine_is_alive), (Some(1.0), false));
}

#[test]
fn ended_task_has_status_and_error() {
    let case = Case { task: task(TaskStatus::Failed, -1, 2), ..Case::default() };
    let error = Some("E: m".into());
    let ended = Reason::Ended { status: TaskStatus::Failed, at: at(-50), error };
    assert_eq!(case.reasons(), [ended]);
}

#[test]
fn position_query_covers_candidate_pools() {
    let engines = [
        engine(1, 1, "mail", &[("default", 1, None), ("slow", 3, None)]),
        engine(2, 31, "mail", &[("default", 1, None)]),
        engine(3, 1, "other", &[("default", 1, None)]),
    ];
    let look = queue_position_query(&task(TaskStatus::Waiting, -1, 0), &engines);
    assert_eq!((look.queues, look.classes), (vec!["default".to_owned()], vec!["mail".to_owned()]));
}

fn limit(options: LimitOptions, holders: &[(i64, bool)]) -> TaskLimit {
    let holder = |(id, is_running): &(i64, bool)| Holder {
        attempt: AttemptId { task_id: TaskId(*id), attempt: 1 },
        is_running: *is_running,
    };
    TaskLimit {
        limit: LimitRow {
            id: LimitId(1),
            limit: Limit::of_class("mail", "mail", options).unwrap(),
            declared: None,
            set_by_operator: true,
            changed_at: at(-1000),
        },
        usage: LimitKeyUsage {
            limit: LimitId(1),
            key: "acme".into(),
            holders: holders.iter().map(holder).collect(),
            last_start_at: None,
            next_start_in: None,
            closed: None,
        },
    }
}

#[test]
fn limits_are_reasons_of_due_tasks() {
    let waits_for = |case: &Case| match &case.reasons()[0] {
        Reason::Limited(by) => Some((by.waits_for, by.held)),
        _ => None,
    };
    let two = || LimitOptions::max(2).key("customer");
    let order = || LimitOptions::in_order().key("customer");
    let with = |limit| Case { limits: vec![limit], ..Case::default() };
    assert_eq!(waits_for(&with(limit(two(), &[(1, true)]))), None);
    let full = with(limit(two(), &[(1, true), (2, true)]));
    assert_eq!(waits_for(&full), Some((KeyWait::Running, 2)));
    let later = Case { task: task(TaskStatus::Waiting, 60, 0), ..full };
    assert_eq!(waits_for(&later), None, "it is not due");
    assert_eq!(waits_for(&with(limit(order(), &[(1, false)]))), Some((KeyWait::Order, 1)));
    assert_eq!(waits_for(&with(limit(order(), &[(7, false)]))), None, "it holds the key itself");
    let rate = LimitOptions::rate(Rate::new(1, Duration::from_secs(60)));
    let mut late = limit(rate, &[]);
    late.usage.next_start_in = Some(Duration::from_secs(9));
    let case = with(late.clone());
    assert_eq!(waits_for(&case), Some((KeyWait::Rate, 0)));
    let Reason::Limited(by) = case.reasons().remove(0) else { panic!("limited") };
    assert_eq!(by.next_start_at, Some(at(9)));
    late.usage.closed = Some((at(60), "429".into()));
    assert_eq!(waits_for(&with(late)), Some((KeyWait::Closed, 0)));
}

#[test]
fn suspended_holder_of_order_is_explained() {
    let holder = |steps: Vec<StepEntry>| {
        let row = TaskRow { id: TaskId(1), ..task(TaskStatus::Waiting, 60, 0).row };
        let case = Case {
            limits: vec![limit(LimitOptions::in_order().key("customer"), &[(1, false)])],
            waiting_holders: vec![WaitingHolder { row, open_steps: steps }],
            ..Case::default()
        };
        let Reason::Limited(mut by) = case.reasons().remove(0) else { panic!("limited") };
        assert_eq!(by.task_id, TaskId(7));
        by.holders.remove(0).suspended_for
    };
    assert_eq!(holder(vec![]), None);
    let waits = open_step("approved", StepState::Waiting, &[]);
    assert_eq!(holder(vec![waits]), Some(SuspendedFor::Signal { signal: "approved".into() }));
    let sleeps = open_step("cooldown", StepState::Sleeping, &[]);
    assert_eq!(holder(vec![sleeps.clone()]), Some(SuspendedFor::Sleep));
    let calls = open_step("ship", StepState::Running, &[7, 8]);
    let children = vec![TaskId(7), TaskId(8)];
    assert_eq!(holder(vec![sleeps, calls]), Some(SuspendedFor::Children { children }));
}

#[test]
fn holder_of_order_is_named_with_its_retry() {
    let first = TaskRow { id: TaskId(1), ..task(TaskStatus::Waiting, 60, 3).row };
    let case = Case {
        limits: vec![limit(LimitOptions::in_order().key("customer"), &[(1, false)])],
        waiting_holders: vec![WaitingHolder { row: first, open_steps: Vec::new() }],
        ..Case::default()
    };
    let Reason::Limited(by) = case.reasons().remove(0) else { panic!("limited") };
    assert_eq!((by.holders[0].due_at, by.holders[0].retry), (Some(at(60)), 3));
}

#[test]
fn blocked_task_names_open_dependencies() {
    let mut case = Case::default();
    case.task.row.is_blocked = true;
    let number = |counted| BoundedCount { counted, and_more: false };
    let some = vec![OpenDependency {
        id: TaskId(5),
        name: Some("extract".into()),
        class: "extract".into(),
        status: TaskStatus::Running,
        is_blocked: false,
        retry: 0,
        due_at: None,
        since: Some(at(-60)),
        instance: Some("web-1".into()),
        condition: DependencyCondition::Success,
    }];
    case.dependencies =
        TaskDependencies { all: number(2), open: number(1), some: some.clone(), failed: vec![] };
    let blocked = Reason::Blocked { dependencies: number(2), open: number(1), some };
    assert_eq!(case.reasons(), std::slice::from_ref(&blocked), "due, but not ready");
    case.engines.clear();
    assert_eq!(case.reasons(), [blocked, Reason::NoEngine { last_seen: None }]);
}

#[test]
fn cancelled_task_names_first_failure() {
    let mut case = Case { task: task(TaskStatus::Cancelled, -1, 0), ..Case::default() };
    let failed = |id| FailedDependency {
        id: TaskId(id),
        name: Some("extract".into()),
        status: Some(TaskStatus::Failed),
    };
    case.dependencies.failed = vec![failed(3), failed(4)];
    let reasons = case.reasons();
    assert!(matches!(reasons[0], Reason::Ended { .. }));
    assert_eq!(
        reasons[1..],
        [Reason::DependencyFailed { first: failed(3), through: vec![TaskId(4)] }]
    );
}
