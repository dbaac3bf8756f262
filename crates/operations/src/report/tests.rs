use super::*;

#[test]
fn tokens_are_distinct_snake_case() {
    let mut seen = std::collections::BTreeSet::new();
    for outcome in OperationOutcome::ALL {
        let token = outcome.as_str();
        assert!(token.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{token}");
        assert!(seen.insert(token), "{token}");
        assert_eq!(OperationOutcome::from_token(token), Some(outcome));
        assert!(!outcome.text().ends_with('.'), "{token}");
    }
}

#[test]
fn report_serializes_tokens() {
    let mut report = OperationReport { audit_id: 4, ..OperationReport::default() };
    report.add(OperationOutcome::Retried);
    report.add(OperationOutcome::Retried);
    report.add(OperationOutcome::NotFound);
    report.message = report.sentence("tasks.retry", "status=failed");
    assert_eq!(
        serde_json::to_value(&report).unwrap(),
        serde_json::json!({
            "audit_id": 4,
            "counts": {"retried": 2, "not_found": 1},
            "message": "status=failed: 2 tasks were retried; 1 task does not exist."
        })
    );
}

#[test]
fn sentences_follow_number_and_subject() {
    use OperationOutcome::*;
    type Counts<'a> = &'a [(OperationOutcome, u64)];
    let cases: &[(&str, &str, Counts<'_>, &str)] = &[
        ("tasks.cancel", "task 7", &[(Cancelled, 1)], "Task 7 was cancelled."),
        ("tasks.cancel", "class=a", &[(Cancelled, 1)], "class=a: 1 task was cancelled."),
        (
            "tasks.cancel",
            "class=a",
            &[(SkippedRunning, 2), (Cancelled, 3), (NotFound, 1)],
            "class=a: 3 tasks were cancelled; 2 tasks were skipped: running; 1 task does not exist.",
        ),
        ("tasks.retry", "class=a", &[], "No tasks match class=a."),
        ("audit.prune", "old entries", &[(Deleted, 2)], "old entries: 2 entries were deleted."),
        ("audit.prune", "old entries", &[], "There are no old entries."),
        ("queues.pause", "mail", &[(Paused, 1)], "Queue mail was paused."),
        ("schedules.run", "tidy", &[(Created, 1)], "Schedule tidy: 1 task was created."),
        (
            "instances.recover",
            "web-1",
            &[(RecoveredWaiting, 2), (DeclaredLost, 1)],
            "Engine web-1 was declared lost; 2 tasks were recovered and wait again.",
        ),
    ];
    for (action, target, counts, sentence) in cases {
        let text = ReportText::new(action, target, counts.iter().copied());
        assert_eq!(text.done(false), *sentence);
    }
    let text = ReportText::new("tasks.delete", "id<9", [(Deleted, 2)].into_iter());
    assert_eq!(text.not_done("no space"), "id<9: 2 tasks were deleted; no space.");
    let text = ReportText::new("tasks.delete", "id<9", std::iter::empty());
    assert_eq!(text.not_done("no space"), "id<9: no space.");
}
