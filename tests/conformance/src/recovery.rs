//! Recovery: a crash counts as a failure, a lost reply costs no retry, and live engines
//! keep their tasks.

use std::time::Duration;

use jiff::SignedDuration;
use task_engine_core::attempt::RetryAdvice;
use task_engine_core::attempt::{AttemptEnd, NextState, TaskError};
use task_engine_core::json::Json;
use task_engine_core::recovery::{Reclaim, ReclaimedAttempt};
use task_engine_core::retry::{RetryOverride, RetryRule};
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::CancelReport;

use crate::TestDatabase;
use crate::fixture::{
    Fixture, WORK, expect_wait, new_instance, new_task, sample_error, with_classes,
    with_expired_lease,
};

/// The attempts of a lost engine end as recorded failures.
pub async fn crash_is_recorded(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    assert!(fixture.declare_lost(engine.id).await);
    let before = fixture.now().await;
    let taken = fixture.recover(engine.id).await;
    let after = fixture.now().await;
    let minute = Duration::from_secs(60);
    assert_eq!(
        taken,
        [ReclaimedAttempt {
            id: hold.id(),
            class: WORK.to_owned(),
            next: NextState::Wait { after: minute, retry_number: 1 },
        }]
    );

    let details = fixture.details(id).await;
    let row = &details.row;
    assert_eq!((row.status, row.attempts), (TaskStatus::Waiting, 1));
    assert_eq!(row.retry_number, 1);
    let [execution] = &details.executions[..] else {
        panic!("one execution, not {:?}", details.executions)
    };
    assert_eq!(execution.status, ExecutionStatus::Failure);
    assert_eq!(execution.instance.as_deref(), Some("a"));
    let error = execution.error.as_ref().expect("an error");
    assert_eq!(error.exception, TaskError::INSTANCE_LOST);
    assert_ne!(error.message, "", "says what happened");
    assert!(execution.stopped_at.is_some());
    assert_eq!((execution.ends_task, &execution.result), (None, &None));
    let minute = SignedDuration::try_from(minute).unwrap();
    let a_bit = SignedDuration::from_millis(5);
    let retry_at = execution.retry_at.expect("a retry");
    assert!(retry_at >= before + minute - a_bit && retry_at <= after + minute + a_bit);
    assert_eq!(fixture.recover(engine.id).await, [], "once");
    assert_eq!(fixture.instances(Some("a")).await[0].held, 0);
}

/// The rule that the lost engine had for the class decides about the delay and the number
/// of retries.
pub async fn class_retry_rule_decides(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let every = RetryRule::every(Duration::from_millis(5500), 2);
    let rules = [("often", every), ("never", RetryRule::never())];
    let often = fixture.create(new_task("often")).await;
    let never = fixture.create(new_task("never")).await;
    for retry_number in 0..2 {
        let next = crash(&fixture, &rules, often).await;
        assert_eq!(expect_wait(next), (Duration::from_millis(5500), retry_number + 1));
        fixture.store.retry(&[often]).await.expect("retry");
        if retry_number == 0 {
            assert_eq!(fixture.status(never).await, TaskStatus::Failed);
        }
    }
    let next = crash(&fixture, &rules, often).await;
    assert_eq!(next, NextState::End(TaskStatus::Failed));

    for (id, attempts) in [(often, 3), (never, 1)] {
        let details = fixture.details(id).await;
        assert_eq!(details.row.status, TaskStatus::Failed);
        assert_eq!(details.executions.len(), attempts);
        let last = details.executions.last().unwrap();
        assert_eq!(last.ends_task, Some(TaskStatus::Failed));
        let error = details.row.error.expect("the last error");
        assert_eq!(error.exception, TaskError::INSTANCE_LOST);
    }
}

/// The rule in the context of a task overrides that of its class.
pub async fn task_retry_rule_overrides_class(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let rules =
        [("often", RetryRule::every(Duration::from_secs(5), 9)), ("never", RetryRule::never())];
    let not_at_all = RetryOverride::default().maximum(0);
    let once = RetryOverride::default().maximum(1).first_delay(Duration::from_millis(1500));
    let id = fixture.create(new_task("often").retry(not_at_all)).await;
    let next = crash(&fixture, &rules, id).await;
    assert_eq!(next, NextState::End(TaskStatus::Failed));
    let id = fixture.create(new_task("never").retry(once)).await;
    let next = crash(&fixture, &rules, id).await;
    assert_eq!(expect_wait(next), (Duration::from_millis(1500), 1));
}

/// An invalid retry rule in a context does not prevent recovery of this task or of
/// others.
pub async fn invalid_retry_rule_allows_recovery(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let rules = [(WORK, RetryRule::every(Duration::from_secs(5), 9))];
    let mut odd = new_task(WORK);
    odd.context = Json::parse(r#"{"retry":{"maximum":"many"}}"#).unwrap();
    fixture.create_all(&[odd, new_task(WORK)]).await;
    let mut engine = fixture.register(with_classes(new_instance("a"), &rules)).await;
    let holds = engine.claim(2).await;
    assert!(fixture.declare_lost(engine.id).await);
    let taken = fixture.recover(engine.id).await;
    assert_eq!(taken.len(), 2);
    for hold in holds {
        assert_ne!(fixture.status(hold.task_id()).await, TaskStatus::Running);
    }
}

/// A crash counts against the rule together with the failures before it.
pub async fn crash_counts_as_failure(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let rule = RetryRule::every(Duration::ZERO, 1);
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.register(with_classes(new_instance("a"), &[(WORK, rule)])).await;
    let hold = engine.claim_one().await;
    let failure = AttemptEnd::Failure(sample_error(), RetryAdvice::ByRule);
    assert_eq!(engine.record(&[hold.ends(failure, &rule)]).await, []);
    let hold = engine.claim_one().await;
    assert_eq!(hold.task.retry_number, 1);
    assert!(fixture.declare_lost(engine.id).await);
    let taken = fixture.recover(engine.id).await;
    assert_eq!(taken[0].next, NextState::End(TaskStatus::Failed));
    assert_eq!(fixture.status(id).await, TaskStatus::Failed);
}

/// A late result of a lost engine changes nothing and is kept as evidence.
pub async fn late_result_is_kept_as_evidence(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(2).await;
    let mut zombie = fixture.engine("zombie").await;
    let holds = zombie.claim(2).await;
    assert!(fixture.declare_lost(zombie.id).await);
    assert_eq!(fixture.recover(zombie.id).await.len(), 2);
    fixture.store.retry(&ids).await.expect("retry");
    let mut heir = fixture.engine("heir").await;
    let second = heir.claim(2).await;

    let result = Json::parse(r#"{"too":"late"}"#).unwrap();
    let success = holds[0].ends(AttemptEnd::Success(result), &RetryRule::default());
    let batch = [success, holds[1].fails()];
    let mut late = zombie.record(&batch).await;
    late.sort();
    assert_eq!(late, [holds[0].id(), holds[1].id()]);

    for (n, id) in ids.iter().enumerate() {
        let details = fixture.details(*id).await;
        assert_eq!(details.row.status, TaskStatus::Running, "by the heir");
        assert_eq!(details.row.instance.as_deref(), Some("heir"));
        assert_eq!(details.executions.len(), 2);
        let [evidence] = &details.late_results[..] else {
            panic!("one late result, not {:?}", details.late_results)
        };
        assert_eq!(evidence.attempt, 1);
        assert_eq!(Some(evidence.ended_at), details.executions[0].stopped_at);
        assert!(evidence.arrived_at >= evidence.ended_at);
        if n == 0 {
            let found = evidence.result.as_ref().expect("the result");
            let found: serde_json::Value = found.decode().unwrap();
            assert_eq!(found, serde_json::json!({"too": "late"}));
            assert_eq!(evidence.error, None);
        } else {
            assert_eq!(evidence.error, Some(sample_error()));
        }
    }
    let endings: Vec<_> = second.iter().map(|hold| hold.succeeds()).collect();
    assert_eq!(heir.record(&endings).await, []);
    for id in ids {
        assert_eq!(fixture.status(id).await, TaskStatus::Stopped);
    }
}

/// No task of a session that has not ended is reclaimed, even if its lease has expired.
pub async fn live_engine_keeps_its_attempts(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(2).await;
    let mut alive = fixture.engine("alive").await;
    let mut late = fixture.register(with_expired_lease(new_instance("late"))).await;
    alive.claim_one().await;
    late.claim_one().await;
    for engine in [&alive, &late] {
        assert_eq!(fixture.recover(engine.id).await, [], "{}", engine.name);
        assert_eq!(engine.held().await.len(), 1, "{}", engine.name);
    }
}

/// Also an engine that stopped in good order may have left something.
pub async fn stopped_engine_attempts_are_reclaimed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    engine.unregister().await;
    let other = fixture.engine("b").await;
    assert_eq!(other.heartbeat().await.orphaned, [engine.id]);
    let taken = fixture.recover(engine.id).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].id, hold.id());
    assert_eq!(fixture.status(id).await, TaskStatus::Waiting);
    assert_eq!(other.heartbeat().await.orphaned, []);
}

/// Claims that their engine does not know are released without using a retry. Other
/// claims of this or other engines are not.
pub async fn unknown_claims_are_released(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(6).await;
    let mut engine = fixture.engine("a").await;
    let mut other = fixture.engine("b").await;
    let unknown = engine.claim(2).await;
    let known = engine.claim(2).await;
    let foreign = other.claim(2).await;
    // One of them was not so unknown after all, and has ended.
    assert_eq!(engine.record(&[unknown[0].succeeds()]).await, []);

    let claims = vec![unknown[0].claim_id, foreign[0].claim_id];
    let taken = engine.reclaim_unknown(claims.clone()).await;
    assert_eq!(
        taken,
        [ReclaimedAttempt {
            id: unknown[1].id(),
            class: WORK.to_owned(),
            next: NextState::Wait { after: Duration::ZERO, retry_number: 0 },
        }]
    );
    assert_eq!(engine.reclaim_unknown(claims).await, [], "once");
    assert_eq!(engine.heartbeat().await.claims, [known[0].claim_id]);
    assert_eq!(engine.held().await.len(), 2);
    assert_eq!(other.held().await.len(), 2);
    assert_eq!(fixture.status(unknown[0].task_id()).await, TaskStatus::Stopped);

    let details = fixture.details(unknown[1].task_id()).await;
    assert_eq!((details.row.attempts, details.row.retry_number), (1, 0));
    let execution = &details.executions[0];
    assert_eq!(execution.started_at, None, "it never did");
    let error = execution.error.as_ref().expect("a reason");
    assert_eq!(error.exception, TaskError::NEVER_STARTED);
    let again = other.claim_one().await;
    assert_eq!(again.task_id(), unknown[1].task_id());
    assert_eq!((again.id().attempt, again.task.retry_number), (2, 0));
}

/// A cancel request survives its engine: the attempt ends as cancelled and is not
/// retried.
pub async fn recovery_applies_cancel_request(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(2).await;
    let mut engine = fixture.engine("a").await;
    let lost_answer = engine.claim_one().await;
    let lost_engine = engine.claim_one().await;
    let reports = fixture.store.cancel(&ids).await.expect("cancel");
    assert_eq!(reports, [CancelReport::Requested; 2]);

    let mut taken = engine.reclaim_unknown(vec![lost_answer.claim_id]).await;
    assert!(fixture.declare_lost(engine.id).await);
    taken.extend(fixture.recover(engine.id).await);
    let taken: Vec<_> = taken.into_iter().map(|one| (one.id, one.next)).collect();
    let cancelled = NextState::End(TaskStatus::Cancelled);
    assert_eq!(taken, [(lost_answer.id(), cancelled), (lost_engine.id(), cancelled)]);
    for id in ids {
        let details = fixture.details(id).await;
        assert_eq!(details.row.status, TaskStatus::Cancelled);
        assert!(!details.cancel_requested, "granted");
        let last = details.executions.last().expect("an execution");
        assert_eq!(last.ends_task, Some(TaskStatus::Cancelled));
    }
}

/// The recovery of an unknown instance finds no claims.
pub async fn recovery_of_unknown_instance_is_empty(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let engine = fixture.engine("a").await;
    assert_eq!(engine.reclaim_unknown(vec![]).await, []);
    let claim = task_engine_core::claim::ClaimId(123_456);
    assert_eq!(engine.reclaim_unknown(vec![claim]).await, []);
    let unknown = task_engine_core::instance::InstanceId(987_654);
    let taken = fixture.store.reclaim(Reclaim::Lost(unknown)).await;
    assert_eq!(taken.expect("reclaim"), []);
}

/// Loses an engine that holds all due tasks. Returns the next state of this task.
async fn crash(fixture: &Fixture, rules: &[(&str, RetryRule)], id: TaskId) -> NextState {
    let mut engine = fixture.register(with_classes(new_instance("mortal"), rules)).await;
    engine.claim_all(10).await;
    assert!(fixture.declare_lost(engine.id).await);
    let taken = fixture.recover(engine.id).await;
    let mine = taken.into_iter().find(|taken| taken.id.task_id == id);
    mine.expect("the task was held").next
}
