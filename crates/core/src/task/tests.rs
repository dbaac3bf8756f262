use super::*;

#[test]
fn unit_struct_has_empty_parameters() {
    #[derive(Serialize, Deserialize)]
    struct Tidy;
    impl Task for Tidy {
        const CLASS: &'static str = "tidy";
    }
    assert_eq!(NewTask::of(&Tidy).unwrap().parameters, Json::empty_object());
}

#[test]
fn class_sets_queue_priority_and_key() {
    #[derive(Serialize, Deserialize)]
    struct Index {
        customer: u64,
    }
    impl Task for Index {
        const CLASS: &'static str = "index";
        fn options() -> TaskOptions {
            TaskOptions::default().priority(7).queue("slow")
        }
        fn unique(&self) -> Option<Unique> {
            Some(Unique::by(format!("customer {}", self.customer)))
        }
    }
    let task = NewTask::of(&Index { customer: 3 }).unwrap();
    assert_eq!((task.priority, task.queue.as_str()), (7, "slow"));
    assert_eq!(task.unique, Some(Unique::by("customer 3")));
    assert_eq!(task.priority(-1).priority, -1, "the task's own priority wins");
}

#[test]
fn rules_store_durations_in_milliseconds() {
    let minute = Duration::from_secs(60);
    let options = TaskOptions::default().timeout(minute).cancel_grace(Duration::MAX);
    let stored = serde_json::to_value(&options).unwrap();
    assert_eq!(stored["timeout_ms"], 60_000);
    assert_eq!(stored["cancel_grace_ms"], u64::MAX);
    assert_eq!(serde_json::from_value::<TaskOptions>(stored).unwrap().timeout, Some(minute));
    let stored = serde_json::to_value(TaskOptions::default()).unwrap();
    assert_eq!(stored.get("timeout_ms"), None);
    assert_eq!(serde_json::from_value::<TaskOptions>(stored).unwrap(), TaskOptions::default());
}

#[test]
fn add_context_keeps_other_fields() {
    let mut task = NewTask::new("a", Json::empty_object()).unwrap();
    task.context = Json::parse(r#"{"big":1970670598291982290123456789}"#).unwrap();
    task.add_context("id", "x").unwrap();
    task.add_context("id", &[1, 2]).unwrap();
    let expected = r#"{"big":1970670598291982290123456789,"id":[1,2]}"#;
    assert_eq!(task.context.as_str(), expected);
    let error = task.add_context("nul", "a\0").unwrap_err().to_string();
    assert!(error.contains("context of a") && error.contains("\\u0000"), "{error}");
    assert_eq!(task.context.as_str(), expected, "unchanged");
}

#[test]
fn invalid_task_names_the_problem() {
    let error = NewTask::new("", Json::empty_object()).unwrap_err();
    assert!(error.to_string().contains("a class needs a name"), "{error}");
    let error = NewTask::new("a", Json::parse("[1]").unwrap()).unwrap_err();
    assert!(error.to_string().contains("parameters of a: a JSON object is needed"), "{error}");
    assert!("0".parse::<TaskId>().is_err());
    assert!("x".parse::<TaskId>().is_err());
}

#[test]
fn retry_rule_is_stored_in_context() {
    let wanted = RetryOverride::default().maximum(3);
    let task = NewTask::new("a", Json::empty_object()).unwrap().retry(wanted);
    assert_eq!(task.context.as_str(), r#"{"retry":{"maximum":3}}"#);
    assert_eq!(RetryOverride::of(&task.context).unwrap(), wanted);
    assert_eq!(RetryOverride::of(&Json::empty_object()).unwrap(), RetryOverride::default());
    let odd = Json::parse(r#"{"retry":{"maximum":"many"}}"#).unwrap();
    assert!(RetryOverride::of(&odd).is_err());
}

#[test]
fn named_limits_are_stored_in_context() {
    let task = NewTask::new("a", Json::empty_object()).unwrap();
    let task = task.limit("api", "acme").unwrap().limit_named("disk").unwrap();
    let task = task.limit("api", "other").unwrap();
    assert_eq!(task.context.as_str(), r#"{"limits":{"api":"other","disk":null}}"#);
    assert!(matches!(task.clone().limit("", "x"), Err(InvalidTask::Name { what: "limit", .. })));
    let task = task.limit("third", "x").unwrap();
    assert_eq!(task.limit("fourth", "x"), Err(InvalidTask::TooManyLimits(4)));
}
