//! What became of a wish to cancel a running attempt, in words.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{clock, relative, span};
use crate::cancel::{CancelOutcome, CancelRow};
use crate::task::ExecutionRow;

/// The whole story, for the page of a task.
#[must_use]
pub fn cancel_history_text(
    cancel: &CancelRow,
    execution: &ExecutionRow,
    now: Timestamp,
    zone: &TimeZone,
) -> String {
    match cancel.outcome {
        CancelOutcome::Pending => {
            format!("requested {}, not obeyed yet", relative(cancel.requested_at, now))
        }
        _ => format!(
            "requested {}; {}",
            clock(cancel.requested_at, zone),
            cancel_answer(cancel, execution.stopped_at)
        ),
    }
}

/// How the attempt took it.
#[must_use]
pub fn cancel_answer(cancel: &CancelRow, ended: Option<Timestamp>) -> String {
    let after = match (cancel.delivered_at, ended) {
        (Some(told), Some(ended)) => span(ended.duration_since(told).unsigned_abs()),
        _ => "some time".to_owned(),
    };
    match cancel.outcome {
        CancelOutcome::Pending => "not obeyed yet".to_owned(),
        CancelOutcome::Acknowledged => format!("its code ended {after} after it was told"),
        CancelOutcome::Killed => {
            format!("its code did not end by itself, and was dropped {after} after it was told")
        }
        CancelOutcome::Ignored => {
            format!("ignored: its code was told, and did its work all the same, {after} later")
        }
        CancelOutcome::Unanswered => "it ended before its code could answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::ExecutionStatus;

    #[test]
    fn every_outcome_is_told() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (requested, told) = (at("2026-12-24T17:00:00Z"), at("2026-12-24T17:00:00.1Z"));
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
            (CancelOutcome::Pending, None, "requested 42 s ago, not obeyed yet"),
            (CancelOutcome::Acknowledged, Some(told), "17:00:00.000 +00:00; its code ended 1 s"),
            (CancelOutcome::Killed, Some(told), "was dropped 1 s after it was told"),
            (CancelOutcome::Ignored, Some(told), "did its work all the same, 1 s later"),
            (CancelOutcome::Unanswered, None, "it ended before its code could answer"),
        ] {
            let cancel = CancelRow { requested_at: requested, delivered_at, outcome };
            let shown = cancel_history_text(&cancel, &execution, now, &TimeZone::UTC);
            assert!(shown.contains(words), "{shown}");
        }
    }
}
