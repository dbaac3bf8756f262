//! One performed task runs as it would in an engine.

use std::sync::atomic::Ordering;

use task_engine::testing::Harness;
use task_engine::{Context, Failure, Json, NewTask, TaskOptions, TaskStatus};

use crate::tasks::{Login, Newsletter, SendMail, harness, mail, panic_of};

#[tokio::test]
async fn performed_task_has_result_and_log() {
    let harness = harness().await;
    let done = harness.perform(mail("ada")).await;
    assert_eq!(done.result::<u32>(), Ok(8), "with what the hook has added");
    assert!(done.is_done() && !done.will_be_retried());
    assert_eq!(done.log(), ["to ada"]);
    let progress = done.progress.as_ref().unwrap();
    assert_eq!((progress.percent, progress.message.as_str()), (50.0, "connected"));
    assert_eq!(harness.state().sent.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn errors_panics_and_timeouts_differ() {
    let harness = harness().await;
    let refused = harness.perform(mail("unknown")).await;
    assert_eq!(refused.error().message, "unknown recipient");
    assert_eq!(refused.status, TaskStatus::Failed);
    assert_eq!(refused.result::<u32>().unwrap_err(), *refused.error());

    let busy = harness.perform(mail("busy")).await;
    assert!(busy.will_be_retried());
    assert_eq!(busy.retry_in.unwrap().as_secs(), 600);

    let panicked = harness.perform(mail("panic")).await;
    assert_eq!(panicked.error().exception, "Panic");
    assert!(panicked.error().message.contains("on fire"), "{panicked}");

    let slow = harness.perform(mail("slow")).await;
    assert_eq!(slow.error().exception, "Timeout");
}

#[tokio::test]
async fn undecodable_parameters_fail_like_production() {
    let harness = harness().await;
    let task = NewTask::new("send_mail", Json::parse(r#"{"to": 1}"#).unwrap()).unwrap();
    let failed = harness.perform_new(task).await;
    assert_eq!(failed.error().exception, "ParametersNotDecodable");
}

#[tokio::test]
async fn perform_runs_nothing_else() {
    let harness = harness().await;
    harness.tasks().create(mail("waits")).priority(99).await.unwrap();
    assert!(harness.perform(mail("busy")).await.will_be_retried());
    assert_eq!(harness.state().sent.load(Ordering::Relaxed), 0);
    // The one that waited, and not the other again.
    let drained = harness.drain_until_quiet().await;
    assert_eq!(drained.len(), 1);
    drained.assert_all_done();
    assert_eq!(harness.created::<SendMail>().await.len(), 1, "what is performed is not created");
    assert_eq!(harness.store().verify().await.unwrap(), []);
}

#[tokio::test]
async fn blocking_code_has_own_thread() {
    let harness = harness().await;
    let login = Login { user: "ada".into(), password: "hunter2".into() };
    let done = harness.perform(login).await;
    assert_eq!(done.result::<String>().unwrap(), format!("task {}login", done.task_id));
}

#[tokio::test]
async fn concurrent_performs_run_in_sequence() {
    let harness = harness().await;
    let (a, b) = tokio::join!(harness.perform(mail("a")), harness.perform(mail("b")));
    assert_eq!((a.log(), b.log()), (vec!["to a"], vec!["to b"]));
}

#[tokio::test]
async fn misuse_of_harness_is_explained() {
    let harness = harness().await;
    let unknown = NewTask::new("sendmail", Json::empty_object()).unwrap();
    let words = panic_of(harness.perform_new(unknown)).await;
    assert!(words.contains(r#"class "sendmail" has no handler"#), "{words}");
    assert!(words.contains("send_mail"), "{words}");

    let done = harness.perform(Newsletter { readers: vec![] }).await;
    let words = panic_of(async { done.result::<String>() }).await;
    assert!(words.contains("is 0, which is no alloc::string::String"), "{words}");
    let words = panic_of(async { done.error().clone() }).await;
    assert!(words.contains("it has no error, its result is 0"), "{words}");

    async fn handler(_: serde_json::Value, _: Context<()>) -> Result<(), Failure> {
        Ok(())
    }
    let twice = Harness::new(|tasks| {
        let options = TaskOptions::default();
        let engine = tasks.engine(()).handle_class("a", options.clone(), handler);
        engine.handle_class("a", options, handler)
    });
    let words = panic_of(twice).await;
    assert!(words.contains("class a has two handlers"), "{words}");
}
