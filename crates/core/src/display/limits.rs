//! Limits for people.

use std::time::Duration;

use crate::limit::{LimitOptions, LimitTarget, Rate};

/// Returns which tasks a limit applies to: `class sync`, `queue mail`, `tasks that name it`.
#[must_use]
pub fn limit_target_text(target: &LimitTarget) -> String {
    match target {
        LimitTarget::Class(class) => format!("class {class}"),
        LimitTarget::Queue(queue) => format!("queue {queue}"),
        LimitTarget::Named => "tasks that name it".to_owned(),
    }
}

/// Returns what a limit allows: `at most 2 running, 100 starts in 1s, for each customer_id`.
#[must_use]
pub fn limit_options_text(options: &LimitOptions) -> String {
    let mut parts = Vec::new();
    if options.in_order {
        parts.push("one at a time, in order".to_owned());
    } else if let Some(max) = options.max {
        parts.push(format!("at most {max} running"));
    }
    if let Some(rate) = &options.rate {
        let even = if rate.even { ", spread evenly" } else { "" };
        parts.push(format!("at most {} in {}{even}", starts(rate.max), window_text(rate.per)));
    }
    if parts.is_empty() {
        parts.push("a fair share".to_owned());
    }
    if let Some(key) = &options.key {
        parts.push(format!("for each {key}"));
    }
    parts.join(", ")
}

fn starts(max: u32) -> String {
    if max == 1 { "1 start".to_owned() } else { format!("{max} starts") }
}

/// Returns a rate as commands read it: `100/1s`.
#[must_use]
pub fn rate_text(rate: &Rate) -> String {
    format!("{}/{}", rate.max, window_text(rate.per))
}

/// Returns the exact length of a window, as durations are read: `1h30m`, `1s500ms`.
#[must_use]
pub fn window_text(per: Duration) -> String {
    let millis = per.as_millis();
    let parts = [
        (millis / 3_600_000, "h"),
        (millis / 60_000 % 60, "m"),
        (millis / 1000 % 60, "s"),
        (millis % 1000, "ms"),
    ];
    let text: String = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Returns a key of a limit, with its parameter: `customer_id acme`, `key acme`, `all tasks without
/// a customer_id`, `all tasks`.
#[must_use]
pub fn limit_key_text(parameter: Option<&str>, key: &str) -> String {
    match (parameter, key) {
        (None, "") => "all tasks".to_owned(),
        (None, key) => format!("key {key}"),
        (Some(parameter), "") => format!("all tasks without a {parameter}"),
        (Some(parameter), key) => format!("{parameter} {key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn options_are_named() {
        let second = Duration::from_secs(1);
        for (options, text) in [
            (LimitOptions::max(1), "at most 1 running"),
            (LimitOptions::max(2).key("customer"), "at most 2 running, for each customer"),
            (
                LimitOptions::max(2).and_rate(Rate::new(1, second)),
                "at most 2 running, at most 1 start in 1s",
            ),
            (
                LimitOptions::rate(Rate::new(100, second * 90).even()),
                "at most 100 starts in 1m30s, spread evenly",
            ),
            (LimitOptions::in_order().key("account"), "one at a time, in order, for each account"),
            (LimitOptions::fair("tenant"), "a fair share, for each tenant"),
        ] {
            assert_eq!(limit_options_text(&options), text);
        }
        assert_eq!(limit_target_text(&LimitTarget::Queue("mail".into())), "queue mail");
    }

    #[test]
    fn shown_rates_can_be_read() {
        for (max, millis) in [(1, 1), (100, 1000), (7, 90_500), (1_000_000, 366 * 86_400_000)] {
            let rate = Rate::new(max, Duration::from_millis(millis));
            assert_eq!(parse::rate(&rate_text(&rate)), Ok(rate));
        }
    }

    #[test]
    fn keys_are_named() {
        assert_eq!(limit_key_text(Some("customer"), "acme"), "customer acme");
        assert_eq!(limit_key_text(Some("customer"), ""), "all tasks without a customer");
        assert_eq!(limit_key_text(None, "acme"), "key acme");
        assert_eq!(limit_key_text(None, ""), "all tasks");
    }
}
