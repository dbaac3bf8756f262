use super::*;

fn parse(text: &str) -> Result<i32, Failure> {
    Ok(text.parse::<i32>()?)
}

fn recorded(failure: Failure) -> (TaskError, RetryAdvice) {
    match failure.into_end() {
        AttemptEnd::Failure(error, advice) => (error, advice),
        other => panic!("{other:?}"),
    }
}

#[test]
fn error_keeps_type_message_and_place() {
    let (error, advice) = recorded(parse("x").unwrap_err());
    assert_eq!(error.exception, "core::num::error::ParseIntError");
    assert_eq!(error.message, "invalid digit found in string");
    assert!(error.backtrace[0].contains("failure/tests.rs:"), "{error:?}");
    assert_eq!(advice, RetryAdvice::ByRule);
}

#[test]
fn backtrace_has_frames_of_application_only() {
    let text = r"
   0: std::backtrace_rs::backtrace::libunwind::trace
         at /rustc/abc/library/std/src/backtrace.rs:117:9
   1: <task_engine::failure::Failure as core::convert::From<E>>::from
         at /src/engine/src/failure.rs:150:10
   2: <core::result::Result<T,F> as core::ops::try_trait::FromResidual<E>>::from_residual
   3: shop::mail::connect
         at ./shop/mail.rs:12:9
   4: {closure#0}
         at ./shop/mail.rs:15:1
   5: <shop::Mailer as task_engine::hook::Hook<S>>::around::{{closure}}
         at ./shop/mail.rs:30:5
   6: <F as tokio::runtime::Runs>::run
   7: <&mut dyn sqlx_core::Connection as core::future::Future>::poll
   8: a_function_in_c
   9: poll<&mut dyn core::future::future::Future<Output=()>>
         at /rustc/abc/library/core/src/future/future.rs:133:9
  10: with_budget<core::task::poll::Poll<()>>
         at /root/.cargo/registry/src/index.crates.io-1/tokio-1.54.1/src/task/coop/mod.rs:167:5
  11: {closure#0}<serde_json::value::Value>
         at /root/.cargo/registry/src/index.crates.io-1/task-engine-0.1.0/src/handler.rs:120:9
  12: task_engine::handler::Classes<S>::add_async::{{closure}}::{{closure}}
  13: guarded<core::task::poll::Poll<()>>
         at /root/.cargo/registry/src/index.crates.io-1/task-engine-0.1.0/src/panic.rs:66:18
  14: shop::main
         at ./shop/main.rs:7:1
  15: __libc_start_main
";
    assert_eq!(
        application_frames(text),
        [
            "shop::mail::connect at ./shop/mail.rs:12:9",
            "{closure#0} at ./shop/mail.rs:15:1",
            "<shop::Mailer as task_engine::hook::Hook<S>>::around::{{closure}} at ./shop/mail.rs:30:5",
            "<&mut dyn sqlx_core::Connection as core::future::Future>::poll",
            "a_function_in_c",
        ]
    );
    for own in ["main", "__rustc::rust_begin_unwind", "rust_begin_unwind", "clone3"] {
        assert!(!is_of_application(own), "{own}");
    }
}

#[test]
fn message_includes_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("mail not sent")]
    struct Outer(#[source] std::io::Error);
    let cause = std::io::Error::other("connection reset");
    let (error, _) = recorded(Failure::from(Outer(cause)));
    assert_eq!(error.message, "mail not sent: connection reset");
}

#[test]
fn error_carries_retry_advice() {
    let (error, advice) = recorded(Failure::no_retry("account closed"));
    assert_eq!((error.exception.as_str(), advice), ("Failure", RetryAdvice::NoRetry));
    assert_eq!(error.message, "account closed");
    let wait = Duration::from_secs(7);
    let (_, advice) = recorded(Failure::retry_after(std::fmt::Error, wait));
    assert_eq!(advice, RetryAdvice::RetryAfter(wait));
}

#[test]
fn snooze_is_no_failure() {
    let minute = Duration::from_secs(60);
    let snooze = Failure::snooze(minute);
    assert_eq!((snooze.snoozes(), snooze.message()), (Some(minute), "postponed by 1 min"));
    let expected = TaskError::new("Snoozed", "rate limit");
    let outcome = Failure::snooze_because(minute, "rate limit").into_end();
    assert_eq!(outcome, AttemptEnd::Snoozed(expected, minute));
    let failure = Failure::no_retry(Failure::snooze(minute));
    assert_eq!(failure.snoozes(), None);
    let (error, advice) = recorded(failure);
    assert_eq!((error.exception.as_str(), advice), ("Failure", RetryAdvice::NoRetry));
}

#[test]
fn boxed_errors_and_strings_convert() {
    fn boxed() -> Result<(), Failure> {
        let error: Box<dyn Error + Send + Sync> = "no".into();
        Err(error)?
    }
    assert_eq!(recorded(boxed().unwrap_err()).0.message, "no");
    assert_eq!(recorded(String::from("s").into()).0.exception, "Failure");
}

#[test]
fn container_error_is_named_by_root_cause() {
    use anyhow::Context as _;
    let named = |error: anyhow::Error| Failure::from(error).exception().to_owned();
    let number = || "x".parse::<i32>();
    assert_eq!(named(number().unwrap_err().into()), "ParseIntError");
    assert_eq!(named(number().context("the price").unwrap_err()), "ParseIntError");
    let file = || std::fs::read("/missing");
    assert_eq!(named(file().unwrap_err().into()), "std::io::error::Error");
    assert_eq!(named(file().context("the order").unwrap_err()), "std::io::error::Error");
    assert_eq!(named(anyhow::anyhow!("no order 7")), "Failure");
    let report = eyre::Report::new(number().unwrap_err());
    assert_eq!(Failure::from(report).exception(), "ParseIntError");
    let boxed: Box<dyn Error + Send + Sync> = Box::new(number().unwrap_err());
    assert_eq!(Failure::from(boxed).exception(), "ParseIntError");
    let failure = Failure::from(number().context("the price").unwrap_err());
    assert_eq!(failure.message(), "the price: invalid digit found in string");
}
