use super::*;

fn tidy(schedule: Schedule) -> Schedule {
    let parameters = Json::parse(r#"{"n":123456789012345678901234567890,"a":{"z":1,"b":[2]}}"#);
    schedule.new_task(NewTask::new("tidy", parameters.unwrap()).unwrap())
}

#[test]
fn definition_round_trips_through_json() {
    let schedule = tidy(Schedule::cron("nightly", " 0 3 * * * "))
        .time_zone("Europe/Paris")
        .missed(Missed::All(7))
        .overlap(Overlap::Wait)
        .jitter(Duration::from_secs(5));
    let definition = schedule.definition().unwrap();
    assert_eq!(
        ScheduleDefinition::from_json(&definition.to_json().unwrap()),
        Ok(definition.clone())
    );
    assert_eq!(definition.rule, "0 3 * * *");
    let newer = definition.to_json().unwrap().as_str().replacen('{', r#"{"moon":1,"#, 1);
    let newer = ScheduleDefinition::from_json(&Json::parse(newer).unwrap()).unwrap_err();
    assert!(newer.to_string().contains("unknown field `moon`"), "{newer}");
}

#[test]
fn unique_task_is_refused() {
    let task = NewTask::new("tidy", Json::empty_object()).unwrap();
    let unique = task.unique(crate::unique::Unique::by("all")).unwrap();
    let refused = Schedule::cron("nightly", "0 3 * * *").new_task(unique).definition();
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("cannot be unique") && refused.contains(".overlap"), "{refused}");
}

#[test]
fn declaration_ignores_order_of_keys() {
    let with = |text: &str| {
        let task = NewTask::new("a", Json::parse(text).unwrap()).unwrap();
        let schedule = Schedule::every("x", Duration::from_secs(900)).new_task(task);
        schedule.definition().unwrap().to_declaration().unwrap()
    };
    assert_eq!(
        with(r#"{"a": {"x":1,"y":[ 2 ]}, "b":1e3}"#),
        with(r#"{"b":1e3,"a":{"y":[2],"x":1}}"#)
    );
    assert_ne!(with(r#"{"a":12345678901234567890123}"#), with(r#"{"a":12345678901234567890124}"#));
    assert!(with("{}").contains(r#""rule":"every 15m""#), "{}", with("{}"));
}

#[test]
fn context_names_schedule_and_slot() {
    let definition = tidy(Schedule::cron("a \"b\"", "@daily")).definition().unwrap();
    let slot = "2027-03-14T03:00:00Z".parse().unwrap();
    let task = definition.task("a \"b\"", Some(slot)).unwrap();
    assert_eq!(task.context.as_str(), r#"{"schedule":"a \"b\"","slot":"2027-03-14T03:00:00Z"}"#);
    assert_eq!(task.due, crate::task::Due::At(slot));
    let extra = definition.task("x", None).unwrap();
    assert_eq!(extra.context.as_str(), r#"{"schedule":"x"}"#);
    assert_eq!(extra.due, crate::task::Due::Now);
}

#[test]
fn jitter_is_bounded_and_repeatable() {
    let jitter = Duration::from_secs(10);
    let definition = tidy(Schedule::cron("a", "@daily")).jitter(jitter).definition().unwrap();
    let slot: Timestamp = "2027-03-14T03:00:00Z".parse().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..100 {
        let slot = slot + SignedDuration::from_hours(24 * n);
        let wait = definition.jitter_of("a", slot);
        assert!(wait < jitter);
        assert_eq!(wait, definition.jitter_of("a", slot));
        seen.insert(wait);
    }
    assert!(seen.len() > 90, "{}", seen.len());
    assert_ne!(definition.jitter_of("a", slot), definition.jitter_of("b", slot));
}

#[test]
fn errors_name_the_schedule() {
    for (schedule, why) in [
        (tidy(Schedule::cron("", "@daily")), "schedule \"\": a schedule needs a name"),
        (tidy(Schedule::cron("a", "0 25 * * *")), "schedule \"a\": invalid cron expression"),
        (tidy(Schedule::cron("a", "0 0 31 2 *")), "never fires"),
        (
            tidy(Schedule::cron("a", "@daily")).time_zone("Mars/Base"),
            "unknown time zone \"Mars/Base\"",
        ),
        (tidy(Schedule::new("a", "every 10ms")), "between 100 ms and 366 days"),
        (tidy(Schedule::new("a", "every 1500us")), "between 100 ms"),
        (tidy(Schedule::new("a", "every 1 month")), "use days"),
        (tidy(Schedule::new("a", "every soon")), "use a form like 30s"),
        (tidy(Schedule::new("a", "every -5m")), "cannot be negative"),
        (tidy(Schedule::new("a", "every")), "it needs 5 fields"),
        (Schedule::cron("a", "@daily"), "it has no task"),
        (tidy(Schedule::cron("a", "@daily")).jitter(Duration::from_secs(90_000)), "jitter"),
        (tidy(Schedule::cron("a", "@daily")).missed(Missed::All(0)), "must be 1 to 1000"),
    ] {
        let error = schedule.definition().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
