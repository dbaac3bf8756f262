use jiff::tz::TimeZone;

use super::*;
use task_engine_core::json::Json;
use task_engine_core::task::TaskRow;

fn now() -> Timestamp {
    "2026-12-24T12:00:00Z".parse().unwrap()
}

fn failed(id: i64, class: &str, message: &str, hours_ago: i64) -> FoundTask {
    let at = now() - jiff::SignedDuration::from_hours(hours_ago);
    let row = TaskRow {
        id: TaskId(id),
        status: TaskStatus::Failed,
        class: class.into(),
        queue: "default".into(),
        priority: 0,
        created_at: at,
        scheduled_at: at,
        updated_at: at,
        attempts: 1,
        retry_number: 0,
        instance: None,
        error: Some(TaskError::new("Http", message)),
        is_blocked: false,
    };
    let empty = Json::parse("{}").unwrap();
    FoundTask {
        row,
        correlation_id: String::new(),
        parent_id: None,
        parameters: empty.clone(),
        context: empty,
        started_at: None,
        ended_at: None,
    }
}

fn found(tasks: Vec<FoundTask>) -> SearchPage {
    SearchPage { tasks, next: None, now: now() }
}

#[test]
fn same_errors_form_one_group() {
    let found = found(vec![
        failed(9, "mail", "user 7: 429 Too Many", 0),
        failed(8, "sms", "user 7: 429 Too Many", 0),
        failed(7, "mail", "user 12: 503 Too Many", 3),
        failed(6, "mail", "user 12: 503 Too Many", 12),
    ]);
    let groups = groups(&found);
    let [mail, sms] = &groups[..] else { panic!("{groups:?}") };
    assert_eq!((mail.count, mail.newest_task, sms.count), (3, TaskId(9), 1));
    assert_eq!(mail.message, "user <n>: <n> Too Many");
    assert_eq!(mail.per_hour, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1]);
    assert_eq!((mail.first_seen, mail.last_seen), (found.tasks[3].row.updated_at, now()));
    let contained: Vec<_> = found.tasks.iter().map(|task| mail.contains(task)).collect();
    assert_eq!(contained, [true, false, true, true]);
    assert_eq!(
        mail.filter().to_string(),
        r#"status=failed class=mail error=Http error~"Too Many""#
    );
    assert!(mail.contains(&found.tasks[2]));
}

#[test]
fn keys_are_stable() {
    // Links contain them.
    let error = failed(1, "mail", "a 1", 0).row.error.unwrap();
    assert_eq!(key_of("mail", &error), "de5c558f79fae05c");
    let split = key_of("ab", &TaskError::new("c", ""));
    assert_ne!(split, key_of("a", &TaskError::new("bc", "")));
}

#[test]
fn filter_matches_tasks_of_group() {
    let long = "word ".repeat(100);
    let unbroken = "é".repeat(300);
    for message in [
        "",
        "7",
        "plain",
        "with \"quotes, and\" more, \\ and = ~ signs",
        "two\nlines of 12",
        "a literal <n> and <hex> 0xff",
        " spaces around 5 ",
        "ΟΔΟΣ 12 Ärger",
        "tab\tand \u{1b}[0m escape 7",
        &long,
        &unbroken,
    ] {
        let task = failed(1, "a b", message, 0);
        let group = &groups(&found(vec![task.clone()]))[0];
        let filter = group.filter();
        assert!(filter.matches(&task, now()) && group.contains(&task), "{message:?}: {filter}");
        // It parses to the same filter.
        let typed = Filter::parse(&filter.to_string(), &TimeZone::UTC).unwrap();
        assert_eq!(typed, filter, "{message:?}");
    }
}
