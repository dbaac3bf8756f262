use super::*;

fn form() -> ScheduleForm {
    ScheduleForm {
        name: "nightly".into(),
        rule: "0 3 * * *".into(),
        class: "tidy".into(),
        ..ScheduleForm::default()
    }
}

#[test]
fn form_round_trips() {
    let filled = ScheduleForm {
        time_zone: "Europe/Paris".into(),
        parameters: "{\n  \"n\": 1.50\n}".into(),
        queue: "mail".into(),
        priority: "-5".into(),
        missed: "all".into(),
        missed_max: "7".into(),
        overlap: "wait".into(),
        jitter: "1m 30s".into(),
        ..form()
    };
    let definition = filled.schedule(None, &Secrets::default()).unwrap().definition().unwrap();
    assert_eq!(definition.parameters.as_str().replace([' ', '\n'], ""), "{\"n\":1.50}");
    assert_eq!((definition.missed, definition.overlap), (Missed::All(7), Overlap::Wait));
    assert_eq!((definition.queue.as_str(), definition.priority), ("mail", -5));
    assert_eq!(definition.jitter, Duration::from_secs(90));
    let again = ScheduleForm::of("nightly", &definition);
    assert_eq!(again, ScheduleForm { jitter: again.jitter.clone(), ..filled });
    let old = StoredSchedule { stored: definition.clone(), redacted: definition.clone() };
    let same = again.schedule(Some(&old), &Secrets::default()).unwrap();
    assert_eq!(same.definition().unwrap(), definition);
}

#[test]
fn unchanged_parameters_and_context_stay() {
    let none = Secrets::default();
    let mut stored = form().schedule(None, &none).unwrap().definition().unwrap();
    stored.context = Json::parse(r#"{"correlation_id":"x"}"#).unwrap();
    stored.parameters = Json::parse(r#"{ "n" : 12345678901234567890123 }"#).unwrap();
    let old = StoredSchedule { redacted: stored.clone(), stored };
    let form = ScheduleForm { queue: "mail".into(), ..ScheduleForm::of("nightly", &old.redacted) };
    let new = form.schedule(Some(&old), &none).unwrap().definition().unwrap();
    assert_eq!(new.context, old.stored.context);
    assert_eq!(new.parameters, old.stored.parameters);
    assert_eq!(new.queue, "mail");
}

#[test]
fn secrets_are_kept_or_replaced() {
    let none = Secrets::default();
    let mut stored = form().schedule(None, &none).unwrap().definition().unwrap();
    stored.parameters = Json::parse(r#"{"key":"hunter22","n":1}"#).unwrap();
    let mut redacted = stored.clone();
    redacted.parameters = Json::parse(r#"{"key":"[secret]","n":1}"#).unwrap();
    let old = StoredSchedule { stored, redacted };
    let form = ScheduleForm::of("nightly", &old.redacted);
    assert!(!form.parameters.contains("hunter22"));
    let kept = form.schedule(Some(&old), &none).unwrap().definition().unwrap();
    assert_eq!(kept.parameters, old.stored.parameters);
    let touched = ScheduleForm { parameters: form.parameters.replace('1', "2"), ..form.clone() };
    let errors = touched.schedule(Some(&old), &none).unwrap_err();
    assert_eq!(errors.keys().collect::<Vec<_>>(), [&"parameters"]);
    let anew = ScheduleForm { parameters: r#"{"key":"other","n":2}"#.into(), ..form };
    assert!(anew.schedule(Some(&old), &none).is_ok());
}

#[test]
fn all_field_errors_are_reported() {
    let wrong = ScheduleForm {
        ignores_schema: false,
        name: String::new(),
        rule: "0 25 * * *".into(),
        time_zone: "Mars/Base".into(),
        class: String::new(),
        parameters: "[1]".into(),
        queue: "x".repeat(201),
        priority: "high".into(),
        missed: "all".into(),
        missed_max: "0".into(),
        overlap: "maybe".into(),
        jitter: "soon".into(),
    };
    let errors = wrong.schedule(None, &Secrets::default()).unwrap_err();
    let fields: Vec<_> = errors.keys().copied().collect();
    assert_eq!(
        fields,
        [
            "class",
            "jitter",
            "missed",
            "name",
            "overlap",
            "parameters",
            "priority",
            "queue",
            "rule",
            "time_zone"
        ],
        "{errors:?}"
    );
    for (invalid, field) in [
        (ScheduleForm { rule: "0 0 31 2 *".into(), ..form() }, "rule"),
        (ScheduleForm { rule: String::new(), ..form() }, "rule"),
        (ScheduleForm { time_zone: "Mars/Base".into(), ..form() }, "time_zone"),
        (ScheduleForm { queue: "\u{1}".into(), ..form() }, "queue"),
        (ScheduleForm { jitter: "2 days".into(), ..form() }, "jitter"),
        (ScheduleForm { jitter: "-5s".into(), ..form() }, "jitter"),
        (ScheduleForm { name: "x".repeat(201), ..form() }, "name"),
    ] {
        let errors = invalid.schedule(None, &Secrets::default()).unwrap_err();
        assert_eq!(errors.keys().collect::<Vec<_>>(), [&field], "{errors:?}");
    }
}
