use super::*;

fn error() -> TaskError {
    TaskError::new("E", "m")
}

fn wait(secs: u64, retry_number: u32) -> NextState {
    NextState::Wait { after: Duration::from_secs(secs), retry_number }
}

const STOPPED: NextState = NextState::End(TaskStatus::Stopped);
const FAILED: NextState = NextState::End(TaskStatus::Failed);
const CANCELLED: NextState = NextState::End(TaskStatus::Cancelled);

#[test]
fn each_end_has_one_next_state() {
    use AttemptEnd::*;
    use RetryAdvice::*;
    let rule = RetryRule::times(3);
    let in_5s = RetryAfter(Duration::from_secs(5));
    for (end, retry_number, next) in [
        (Success(Json::null()), 0, STOPPED),
        (Success(Json::null()), 99, STOPPED),
        (AttemptEnd::result_not_storable("NUL"), 0, FAILED),
        (AttemptEnd::unreadable(TaskId(1), "no row"), 0, FAILED),
        (Failure(error(), ByRule), 0, wait(60, 1)),
        (Failure(error(), ByRule), 2, wait(240, 3)),
        (Failure(error(), ByRule), 3, FAILED),
        (Failure(error(), NoRetry), 0, FAILED),
        (Failure(error(), in_5s), 2, wait(5, 3)),
        (Failure(error(), in_5s), 3, FAILED),
        (Failure(error(), RetryAfter(Duration::MAX)), 0, wait(366 * 86_400, 1)),
        (Panic(error()), 0, wait(60, 1)),
        (Panic(error()), 3, FAILED),
        (AttemptEnd::timeout(Duration::ZERO), 0, wait(60, 1)),
        (AttemptEnd::timeout(Duration::ZERO), 3, FAILED),
        (AttemptEnd::not_committed(), 0, wait(60, 1)),
        (AttemptEnd::not_committed(), 3, FAILED),
        (Lost(error()), 0, wait(60, 1)),
        (Lost(error()), 3, FAILED),
        (Cancelled(error()), 0, CANCELLED),
        (AttemptEnd::released(), 0, wait(0, 0)),
        (AttemptEnd::released(), 3, wait(0, 3)),
        (AttemptEnd::never_started("stop"), 0, wait(0, 0)),
        (AttemptEnd::never_started("stop"), 3, wait(0, 3)),
        (Snoozed(error(), Duration::from_secs(5)), 0, wait(5, 0)),
        (Snoozed(error(), Duration::from_secs(5)), 99, wait(5, 99)),
        (Snoozed(error(), Duration::MAX), 1, wait(366 * 86_400, 1)),
    ] {
        let policy = RetryPolicy::of(rule);
        assert_eq!(decide_end(&end, 1, retry_number, &policy), next, "{end:?}");
        let at_last_number = decide_end(&end, i32::MAX, retry_number, &policy);
        let expected = if let NextState::Wait { .. } = next { FAILED } else { next };
        assert_eq!(at_last_number, expected, "{end:?}");
    }
}

#[test]
fn retry_function_replaces_rule() {
    let again = |_: &TaskError| Some(Duration::from_secs(9));
    let policy = RetryPolicy { function: Some(&again), ..RetryPolicy::of(RetryRule::never()) };
    let next = |end: &AttemptEnd| decide_end(end, 1, 7, &policy);
    for asked in [
        AttemptEnd::Failure(error(), RetryAdvice::ByRule),
        AttemptEnd::Panic(error()),
        AttemptEnd::timeout(Duration::ZERO),
        AttemptEnd::not_committed(),
    ] {
        assert_eq!(next(&asked), wait(9, 8), "{asked:?}");
    }
    for not_asked in [
        AttemptEnd::Failure(error(), RetryAdvice::NoRetry),
        AttemptEnd::Failure(error(), RetryAdvice::RetryAfter(Duration::ZERO)),
        AttemptEnd::result_not_storable("NUL"),
        AttemptEnd::unreadable(TaskId(1), "no row"),
        AttemptEnd::Lost(error()),
    ] {
        assert_eq!(next(&not_asked), FAILED, "{not_asked:?}");
    }
}

#[test]
fn lost_attempt_fails_without_retries() {
    let policy = RetryPolicy::of(RetryRule::never());
    assert_eq!(decide_end(&AttemptEnd::Lost(error()), 1, 0, &policy), FAILED);
}

#[test]
fn cancel_request_cancels_waiting_tasks_only() {
    assert_eq!(wait(1, 1).with_cancel_request(), CANCELLED);
    for end in [STOPPED, FAILED, CANCELLED] {
        assert_eq!(end.with_cancel_request(), end);
    }
}

#[test]
fn interrupted_code_ends_as_documented() {
    use CancelReaction::{Acknowledged, Ignored, Killed};
    use InterruptCause::{CancelRequested, EngineStopped, InstanceLost};
    let failure = || Some(AttemptEnd::Failure(error(), RetryAdvice::ByRule));
    let panic = || Some(AttemptEnd::Panic(error()));
    let snooze = || Some(AttemptEnd::Snoozed(error(), Duration::ZERO));
    let success = || Some(AttemptEnd::Success(Json::null()));
    let not_storable = || Some(AttemptEnd::result_not_storable("NUL"));
    let (cancel, stop, lost) = (Some(CancelRequested), Some(EngineStopped), Some(InstanceLost));
    for (code, cause, timed_out, forced, name, reaction) in [
        (success(), None, false, false, "", None),
        (success(), cancel, true, true, "", Some(Ignored)),
        (not_storable(), None, false, false, "ResultNotStorable", None),
        (not_storable(), cancel, true, false, "ResultNotStorable", Some(Ignored)),
        (not_storable(), stop, false, true, "ResultNotStorable", None),
        (failure(), None, false, false, "E", None),
        (failure(), cancel, false, false, "Cancelled", Some(Acknowledged)),
        (failure(), cancel, true, false, "Timeout", Some(Acknowledged)),
        (failure(), stop, false, false, "EngineStopped", None),
        (failure(), lost, false, false, "EngineStopped", None),
        (failure(), None, true, false, "Timeout", None),
        (failure(), stop, true, true, "EngineStopped", None),
        (snooze(), None, false, false, "E", None),
        (snooze(), cancel, false, false, "Cancelled", Some(Acknowledged)),
        (snooze(), stop, false, false, "E", None),
        (panic(), cancel, false, false, "E", Some(Acknowledged)),
        (panic(), stop, false, false, "E", None),
        (None, cancel, false, false, "Cancelled", Some(Killed)),
        (None, cancel, false, true, "Cancelled", Some(Killed)),
        (None, stop, false, false, "EngineStopped", None),
        (None, None, true, false, "Timeout", None),
        (None, stop, true, true, "EngineStopped", None),
    ] {
        let during = Interruption {
            cause,
            timed_out_after: timed_out.then_some(Duration::from_secs(1)),
            grace: Duration::from_secs(1),
            forced_stop: forced,
        };
        let what = format!("{code:?} {during:?}");
        let (end, reacted) = AttemptEnd::of_code(code, &during);
        let exception = end.error().map_or("", |error| &error.exception);
        assert_eq!((exception, reacted), (name, reaction), "{what}");
    }
}

#[test]
fn message_names_cause_of_release() {
    for (cause, words) in [
        (InterruptCause::EngineStopped, "the engine stopped before"),
        (InterruptCause::InstanceLost, "the engine was declared lost before"),
    ] {
        let during = Interruption { cause: Some(cause), ..Interruption::default() };
        for code in [None, Some(AttemptEnd::Failure(error(), RetryAdvice::ByRule))] {
            let (end, _) = AttemptEnd::of_code(code, &during);
            let message = &end.error().unwrap().message;
            assert!(message.starts_with(words), "{cause:?}: {message}");
        }
    }
}

#[test]
fn error_is_made_storable() {
    let error = TaskError::new("E", format!("a\0b{}", "é".repeat(20_000))).storable();
    assert!(error.message.starts_with("a\u{2400}bé"));
    assert!(error.message.len() < 17_000);
    assert!(error.message.ends_with("bytes in all)"), "{}", error.message);
}
