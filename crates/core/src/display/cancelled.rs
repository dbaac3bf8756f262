//! Text about the cancel request of a running attempt.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{clock, relative, span};
use crate::cancel::{CancelOutcome, CancelRow};
use crate::task::ExecutionRow;

/// Returns the cancel request and its outcome, for the page of a task.
#[must_use]
pub fn cancel_history_text(
    cancel: &CancelRow,
    execution: &ExecutionRow,
    now: Timestamp,
    zone: &TimeZone,
) -> String {
    match cancel.outcome {
        CancelOutcome::Pending => {
            format!("requested {}, no response yet", relative(cancel.requested_at, now))
        }
        _ => format!(
            "requested {}; {}",
            clock(cancel.requested_at, zone),
            cancel_outcome_text(cancel, execution.stopped_at)
        ),
    }
}

/// Returns how the attempt responded to the cancel request.
#[must_use]
pub fn cancel_outcome_text(cancel: &CancelRow, ended: Option<Timestamp>) -> String {
    let after = match (cancel.delivered_at, ended) {
        (Some(delivered), Some(ended)) => span(ended.duration_since(delivered).unsigned_abs()),
        _ => "some time".to_owned(),
    };
    match cancel.outcome {
        CancelOutcome::Pending => "no response yet".to_owned(),
        CancelOutcome::Acknowledged => {
            format!("its code ended {after} after the request was delivered")
        }
        CancelOutcome::Killed => {
            format!(
                "its code did not end by itself and was dropped {after} after the request was delivered"
            )
        }
        CancelOutcome::Ignored => {
            format!("ignored: its code finished its work {after} after the request was delivered")
        }
        CancelOutcome::Unanswered => "it ended before its code could respond".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::ExecutionStatus;

    #[test]
    fn every_outcome_has_a_text() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (requested, delivered) = (at("2026-12-24T17:00:00Z"), at("2026-12-24T17:00:00.1Z"));
        let (ended, now) = (at("2026-12-24T17:00:01.1Z"), at("2026-12-24T17:00:42Z"));
        let execution = ExecutionRow {
            attempt: 1,
            retry_number: 0,
            status: ExecutionStatus::Failure,
            instance: None,
            worker: None,
            started_at: None,
            stopped_at: Some(ended),
            result: None,
            error: None,
            ends_task: None,
            retry_at: None,
            progress: None,
            log_lines: 0,
            cancel: None,
        };
        for (outcome, delivered_at, words) in [
            (CancelOutcome::Pending, None, "requested 42 s ago, no response yet"),
            (
                CancelOutcome::Acknowledged,
                Some(delivered),
                "17:00:00.000 +00:00; its code ended 1 s",
            ),
            (CancelOutcome::Killed, Some(delivered), "was dropped 1 s after the request"),
            (CancelOutcome::Ignored, Some(delivered), "finished its work 1 s after"),
            (CancelOutcome::Unanswered, None, "it ended before its code could respond"),
        ] {
            let cancel = CancelRow { requested_at: requested, delivered_at, outcome };
            let text = cancel_history_text(&cancel, &execution, now, &TimeZone::UTC);
            assert!(text.contains(words), "{text}");
        }
    }
}
