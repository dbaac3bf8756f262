use super::*;

/// A case that is not listed would never run.
#[test]
fn every_case_is_in_the_suite() {
    let listed = include_str!("lib.rs");
    for source in [
        include_str!("completions.rs"),
        include_str!("creation.rs"),
        include_str!("claims.rs"),
        include_str!("records.rs"),
        include_str!("snoozes.rs"),
        include_str!("races.rs"),
        include_str!("recovery.rs"),
        include_str!("operations.rs"),
        include_str!("instances.rs"),
        include_str!("listing.rs"),
        include_str!("wake_ups.rs"),
        include_str!("hostile.rs"),
        include_str!("properties.rs"),
        include_str!("queues.rs"),
        include_str!("reports.rs"),
        include_str!("cancellations.rs"),
        include_str!("unique.rs"),
        include_str!("unique_races.rs"),
        include_str!("flows.rs"),
        include_str!("schedules.rs"),
        include_str!("schedule_events.rs"),
        include_str!("schedule_slots.rs"),
        include_str!("watching.rs"),
        include_str!("checks.rs"),
        include_str!("exports.rs"),
        include_str!("searches.rs"),
        include_str!("audits.rs"),
        include_str!("tokens.rs"),
        include_str!("logins.rs"),
        include_str!("rollups.rs"),
    ] {
        let cases = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "))
            .filter_map(|line| line.split_once('('));
        let mut count = 0;
        for (case, _) in cases {
            let line = format!("\n                {case}\n");
            assert!(listed.contains(&line), "{case} is not in suite!");
            count += 1;
        }
        assert!(count > 0, "cases are found");
    }
}

#[test]
fn good_case_passes() {
    report::<()>(Ok(Ok(())), None);
}

#[test]
#[should_panic(expected = "task 7 is nowhere")]
fn broken_invariant_fails_case() {
    report::<()>(Ok(Ok(())), Some("task 7 is nowhere"));
}

#[test]
#[should_panic(expected = "message of the case")]
fn failed_case_keeps_its_message() {
    let panic = Box::new("message of the case");
    report::<()>(Err(panic), Some("task 7 is nowhere"));
}

#[test]
#[should_panic(expected = "has not ended within")]
fn hanging_case_fails() {
    report(Ok(Err(())), None);
}
