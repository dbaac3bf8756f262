use super::*;
use task_engine_core::json::Json;

fn task() -> NewTask {
    NewTask::new("a", Json::empty_object()).unwrap()
}

fn hooks(hook: impl CreationHook) -> CreationHooks {
    let mut hooks = CreationHooks::default();
    hooks.add(hook);
    hooks
}

#[test]
fn hooks_see_earlier_changes() {
    let mut hooks = hooks(|task: &mut NewTask| Ok(task.add_context("first", &1)?));
    hooks.add(|task: &mut NewTask| {
        let seen = task.context.clone();
        task.queue = "slow".into();
        Ok(task.add_context("second", &seen)?)
    });
    let mut new = task();
    hooks.apply(&mut new).unwrap();
    assert_eq!(new.context.as_str(), r#"{"first":1,"second":{"first":1}}"#);
    assert_eq!(new.queue, "slow");
}

#[test]
fn refusal_stops_later_hooks() {
    let mut hooks = hooks(|_: &mut NewTask| Err(Refusal::because("not on Sundays")));
    hooks.add(|_: &mut NewTask| panic!("must not be called"));
    let error = hooks.apply(&mut task()).unwrap_err().to_string();
    assert!(error.contains("a task of class a") && error.contains("not on Sundays"), "{error}");
}

#[test]
fn panic_error_names_hook() {
    struct Rash;
    impl CreationHook for Rash {
        fn creating(&self, _: &mut NewTask) -> Result<(), Refusal> {
            panic!("out of {}", "luck")
        }
    }
    let error = hooks(Rash).apply(&mut task()).unwrap_err().to_string();
    assert!(error.contains("Rash") && error.contains("out of luck"), "{error}");
}

#[test]
fn invalid_changes_are_refused() {
    let spoil = |change: fn(&mut NewTask)| {
        let hook = move |task: &mut NewTask| {
            change(task);
            Ok(())
        };
        hooks(hook).apply(&mut task()).unwrap_err().to_string()
    };
    let error = spoil(|task| task.queue.clear());
    assert!(error.contains("hook") && error.contains("a queue needs a name"), "{error}");
    let error = spoil(|task| task.context = Json::null());
    assert!(error.contains("context of a"), "{error}");
    let error = spoil(|task| task.unique = Some(task_engine_core::unique::Unique::by("")));
    assert!(error.contains("1 to 500 bytes"), "{error}");
}
