//! `#[derive(Task)]` against the trait written by hand.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::limit::{LimitOptions, Rate};
use task_engine::{NewTask, OnConflict, RetryRule, Scope, Task, TaskOptions, Unique};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Both are the same class, with these parameters.
fn assert_same<A: Task, B: Task>(derived: &A, by_hand: &B) {
    assert_eq!(A::CLASS, B::CLASS);
    assert_eq!(A::SECRETS, B::SECRETS);
    assert_eq!(A::options(), B::options());
    assert_eq!(derived.unique(), by_hand.unique());
    let (derived, by_hand) = (NewTask::of(derived).unwrap(), NewTask::of(by_hand).unwrap());
    assert_eq!(derived, by_hand);
}

#[derive(Serialize, Deserialize)]
struct Address {
    city: String,
    phone: String,
}

impl Address {
    fn sample() -> Self {
        Self { city: "Paris".into(), phone: "0123456".into() }
    }
}

#[test]
fn all_attributes_equal_the_trait() {
    #[derive(Serialize, Deserialize, Task)]
    #[task(
        class = "receipt",
        queue = "mail",
        priority = -5,
        retries = 5,
        backoff = "30s",
        jitter = 0.2,
        restart_after_progress = false,
        timeout = "1m30s",
        cancel_grace = "250ms",
        unique(
            key = "order {order:>5} in {address.city}",
            scope = "waiting",
            on_conflict = "replace"
        ),
        secrets("card", "address.phone")
    )]
    struct Derived {
        order: u64,
        card: String,
        address: Address,
    }

    #[derive(Serialize, Deserialize)]
    struct ByHand {
        order: u64,
        card: String,
        address: Address,
    }

    impl Task for ByHand {
        const CLASS: &'static str = "receipt";
        const SECRETS: &'static [&'static str] = &["card", "address.phone"];

        fn options() -> TaskOptions {
            TaskOptions::default()
                .retry(RetryRule::every(SECOND * 30, 5).jitter(0.2).restart_after_progress(false))
                .timeout(SECOND * 90)
                .queue("mail")
                .priority(-5)
                .cancel_grace(Duration::from_millis(250))
        }

        fn unique(&self) -> Option<Unique> {
            let key = format!("order {:>5} in {}", self.order, self.address.city);
            Some(Unique::by(key).scope(Scope::Waiting).on_conflict(OnConflict::Replace))
        }
    }

    let card = || "4000123412341234".to_owned();
    let derived = Derived { order: 7, card: card(), address: Address::sample() };
    assert_same(&derived, &ByHand { order: 7, card: card(), address: Address::sample() });
    assert_eq!(derived.unique().unwrap().key, "order     7 in Paris");
}

#[test]
fn attributes_are_optional() {
    #[derive(Serialize, Deserialize, Task)]
    struct HTTPFetch;

    #[derive(Serialize, Deserialize)]
    struct ByHand;

    impl Task for ByHand {
        const CLASS: &'static str = "http_fetch";
    }

    assert_same(&HTTPFetch, &ByHand);
}

#[test]
fn retry_rules_have_every_form() {
    macro_rules! rule {
        ($($attributes:tt)*) => {{
            #[derive(Serialize, Deserialize, Task)]
            #[task($($attributes)*)]
            struct It;
            It::options().retry
        }};
    }
    assert_eq!(rule!(priority = 1), RetryRule::default());
    assert_eq!(rule!(retries = 0), RetryRule::never());
    assert_eq!(rule!(restart_after_progress = true), RetryRule::default());
    assert!(!rule!(restart_after_progress = false).restart_after_progress);
    assert_eq!(rule!(retries = 3), RetryRule::times(3));
    assert_eq!(rule!(backoff = "2 minutes"), RetryRule::every(SECOND * 120, 10));
    assert_eq!(rule!(retries = 3, backoff = "5s"), RetryRule::every(SECOND * 5, 3));
    assert_eq!(rule!(backoff = "5s.."), RetryRule::default().first_delay(SECOND * 5));
    assert_eq!(
        rule!(retries = 20, backoff = "5s..1h", jitter = 1),
        RetryRule::times(20).first_delay(SECOND * 5).cap(HOUR).jitter(1.0)
    );
    assert_eq!(
        rule!(retry = RetryRule::times(2).factor(3.0), priority = 1),
        RetryRule::times(2).factor(3.0)
    );
}

#[test]
fn keys_have_every_form() {
    #[derive(Serialize, Deserialize, Task)]
    #[task(unique = "{0}")]
    struct Wrapper(Inner);

    #[derive(Serialize, Deserialize)]
    struct Inner {
        r#type: u8,
    }

    impl std::fmt::Display for Inner {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "type {}", self.r#type)
        }
    }

    #[derive(Serialize, Deserialize, Task)]
    #[task(unique = "{{{type:?}}} {inner.type}")]
    struct Raw {
        r#type: Option<u8>,
        inner: Inner,
    }

    #[derive(Serialize, Deserialize, Task)]
    #[task(unique)]
    struct All {
        order: u64,
        card: Option<String>,
    }

    #[derive(Serialize, Deserialize, Task)]
    #[task(unique(scope = "1h"))]
    enum OfEnum {
        Png { width: u32 },
    }

    #[derive(Serialize, Deserialize, Task)]
    #[task(unique(key = "tidy", scope = "active", on_conflict = "replace-time"))]
    struct Tidy;

    let key = |task: Option<Unique>| task.unwrap().key;
    assert_eq!(key(Wrapper(Inner { r#type: 7 }).unique()), "type 7");
    let raw = Raw { r#type: Some(1), inner: Inner { r#type: 2 } };
    assert_eq!(key(raw.unique()), "{Some(1)} 2");
    let all = All { order: 7, card: None };
    assert_eq!(all.unique(), Some(Unique::by(r#"{"card":null,"order":7}"#)));
    let of_enum = Unique::by(r#"{"Png":{"width":640}}"#).scope(Scope::Within(HOUR));
    assert_eq!(OfEnum::Png { width: 640 }.unique(), Some(of_enum));
    let tidy = Unique::by("tidy").on_conflict(OnConflict::ReplaceTime);
    assert_eq!(Tidy.unique(), Some(tidy));
}

#[test]
fn crate_path_can_be_set() {
    mod elsewhere {
        pub(super) use ::task_engine as engine;
    }

    #[derive(Serialize, Deserialize, Task)]
    #[task(crate = elsewhere::engine, retries = 2, unique = "a")]
    struct Renamed;

    #[derive(Serialize, Deserialize, Task)]
    #[task(crate = ::task_engine::core, retries = 2, unique(scope = "waiting"))]
    struct OfCore;

    assert_eq!((Renamed::CLASS, OfCore::CLASS), ("renamed", "of_core"));
    assert_eq!(Renamed::options(), OfCore::options());
}

#[test]
fn serde_attributes_are_respected() {
    #[derive(Serialize, Deserialize, Task)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Tagged {
        Nothing,
        All { at_once: bool },
    }

    #[derive(Serialize, Deserialize, Task)]
    #[serde(rename_all = "camelCase")]
    #[task(secrets("cardNumber"), unique = "{order_number}")]
    struct Renamed {
        card_number: String,
        order_number: u64,
    }

    let parameters = |task: NewTask| task.parameters.to_string();
    assert_eq!(parameters(NewTask::of(&Tagged::Nothing).unwrap()), r#"{"type":"nothing"}"#);
    assert!(NewTask::of(&Tagged::All { at_once: true }).is_ok());
    let task = NewTask::of(&Renamed { card_number: "40001234".into(), order_number: 7 }).unwrap();
    assert!(format!("{task:?}").contains("[secret]"), "{task:?}");
    assert_eq!(task.unique, Some(Unique::by("7")));
}

#[test]
fn limits_equal_the_trait() {
    #[derive(Serialize, Deserialize, Task)]
    #[task(class = "sync", limit = 2, rate = "100/1s", key = "customer", fair = "region")]
    struct Derived {
        customer: String,
        region: u8,
    }

    #[derive(Serialize, Deserialize, Task)]
    #[task(
        class = "sync",
        limit(max = 2, key = "customer"),
        rate(max = 100, per = "1s", key = "customer"),
        fair = "region"
    )]
    struct Nested {
        customer: String,
        region: u8,
    }

    #[derive(Serialize, Deserialize)]
    struct ByHand {
        customer: String,
        region: u8,
    }

    impl Task for ByHand {
        const CLASS: &'static str = "sync";

        fn options() -> TaskOptions {
            TaskOptions::default()
                .limit(LimitOptions::max(2).key("customer"))
                .limit(LimitOptions::rate(Rate::new(100, SECOND)).key("customer"))
                .limit(LimitOptions::fair("region"))
        }
    }

    let (customer, region) = (String::from("acme"), 1);
    let by_hand = ByHand { customer: customer.clone(), region };
    assert_same(&Derived { customer: customer.clone(), region }, &by_hand);
    assert_same(&Nested { customer, region }, &by_hand);
}

#[test]
fn order_and_even_rate_equal_the_trait() {
    #[derive(Serialize, Deserialize, Task)]
    #[task(class = "post", in_order(key = "account"), rate(max = 5, per = "1m", even))]
    struct Derived {
        account: u64,
    }

    #[derive(Serialize, Deserialize)]
    struct ByHand {
        account: u64,
    }

    impl Task for ByHand {
        const CLASS: &'static str = "post";

        fn options() -> TaskOptions {
            TaskOptions::default()
                .limit(LimitOptions::in_order().key("account"))
                .rate(Rate::new(5, SECOND * 60).even())
        }
    }

    assert_same(&Derived { account: 7 }, &ByHand { account: 7 });
}
