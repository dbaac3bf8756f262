use super::*;
use task_engine_core::task::TaskId;

const ID: AttemptId = AttemptId { task_id: TaskId(1), attempt: 1 };

fn cause(running: &RunningAttempts) -> Option<InterruptCause> {
    running.interrupt(ID).map(|interrupt| interrupt.cause)
}

#[test]
fn first_interrupt_cause_stays() {
    let running = RunningAttempts::default();
    let token = CancellationToken::new();
    running.begin(ID, token.clone());
    assert_eq!(running.request_cancel(&[ID]), [ID]);
    assert_eq!(running.request_cancel(&[ID]), [], "interrupted before");
    assert_eq!(running.request_cancel(&[]), []);
    running.interrupt_all(InterruptCause::EngineStopped);
    assert!(token.is_cancelled());
    assert_eq!(cause(&running), Some(InterruptCause::CancelRequested));
    running.end(ID);
    assert_eq!(cause(&running), None);
    let late = CancellationToken::new();
    running.begin(ID, late.clone());
    assert!(late.is_cancelled(), "began after all were interrupted");
    assert_eq!(cause(&running), Some(InterruptCause::EngineStopped));
    running.end(ID);
    assert_eq!(running.request_cancel(&[ID]), [], "has ended");
}

#[test]
fn early_cancel_request_is_kept() {
    let running = RunningAttempts::default();
    assert_eq!(running.request_cancel(&[ID]), []);
    let token = CancellationToken::new();
    running.begin(ID, token.clone());
    assert!(token.is_cancelled());
    assert_eq!(cause(&running), Some(InterruptCause::CancelRequested));
    let next = AttemptId { attempt: 2, ..ID };
    let token = CancellationToken::new();
    running.begin(next, token.clone());
    assert!(!token.is_cancelled(), "another attempt");
}
