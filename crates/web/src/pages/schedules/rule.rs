//! Simple rules as text. Other rules stay an expression: an almost correct text
//! would be worse.

use task_engine_core::display::span;
use task_engine_core::schedule::ScheduleRule;

const DAYS: [(&str, &str); 7] = [
    ("SUN", "Sunday"),
    ("MON", "Monday"),
    ("TUE", "Tuesday"),
    ("WED", "Wednesday"),
    ("THU", "Thursday"),
    ("FRI", "Friday"),
    ("SAT", "Saturday"),
];

/// `every 15 min`, `every day at 03:00`; `None` if the rule is not simple.
pub(super) fn describe(rule: &str) -> Option<String> {
    if let ScheduleRule::Every(interval) = rule.parse().ok()? {
        return Some(format!("every {}", span(interval)));
    }
    let nick = match rule.trim() {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        rule => rule,
    };
    let fields: Vec<&str> = nick.split_whitespace().collect();
    let &[minute, hour, day, month, weekday] = &fields[..] else { return None };
    if month != "*" {
        return None;
    }
    match (minute, hour, day, weekday) {
        ("*", "*", "*", "*") => Some("every minute".to_owned()),
        (minute, "*", "*", "*") => match step(minute, 60) {
            Some(step) => Some(format!("every {step} min")),
            None => Some(format!("every hour at :{:02}", number(minute, 59)?)),
        },
        (minute, hour, "*", "*") => match (step(hour, 24), number(minute, 59)) {
            (Some(step), Some(minute)) => Some(format!("every {step} h at :{minute:02}")),
            _ => Some(format!("every day at {}", clock(minute, hour)?)),
        },
        (minute, hour, "*", weekday) => {
            Some(format!("{} at {}", weekdays(weekday)?, clock(minute, hour)?))
        }
        (minute, hour, day, "*") => {
            Some(format!("every month on day {} at {}", number(day, 31)?, clock(minute, hour)?))
        }
        _ => None,
    }
}

/// `*/n` where the steps are even, also from one hour or day to the next.
fn step(field: &str, of: u32) -> Option<u32> {
    let step: u32 = field.strip_prefix("*/")?.parse().ok()?;
    (step > 1 && step < of && of.is_multiple_of(step)).then_some(step)
}

fn number(field: &str, max: u32) -> Option<u32> {
    let plain = field.bytes().all(|byte| byte.is_ascii_digit());
    field.parse().ok().filter(|number| plain && *number <= max)
}

fn clock(minute: &str, hour: &str) -> Option<String> {
    Some(format!("{:02}:{:02}", number(hour, 23)?, number(minute, 59)?))
}

fn weekdays(field: &str) -> Option<String> {
    let name = |text: &str| {
        let by_name = DAYS.iter().find(|(short, _)| text.eq_ignore_ascii_case(short));
        let by_number = || DAYS.get(number(text, 7)? as usize % 7);
        by_name.or_else(by_number).map(|(_, name)| *name)
    };
    match field.split_once('-') {
        None => Some(format!("every {}", name(field)?)),
        Some((first, last)) => Some(format!("{} to {}", name(first)?, name(last)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_rules_are_described() {
        for (rule, expected) in [
            ("every 15m", "every 15 min"),
            ("@every 90s", "every 1 min 30 s"),
            ("* * * * *", "every minute"),
            ("*/5 * * * *", "every 5 min"),
            ("7 * * * *", "every hour at :07"),
            ("@hourly", "every hour at :00"),
            ("0 */6 * * *", "every 6 h at :00"),
            ("0 3 * * *", "every day at 03:00"),
            ("@daily", "every day at 00:00"),
            ("30 9 * * 1-5", "Monday to Friday at 09:30"),
            ("30 9 * * MON", "every Monday at 09:30"),
            ("0 0 * * 7", "every Sunday at 00:00"),
            ("15 4 1 * *", "every month on day 1 at 04:15"),
        ] {
            assert_eq!(describe(rule).as_deref(), Some(expected), "{rule}");
        }
    }

    #[test]
    fn other_rules_are_not_described() {
        for rule in [
            "*/7 * * * *",
            "0 */5 * * *",
            "0 3 1 1 *",
            "0 3 13 * 5",
            "0,30 3 * * *",
            "0 0 3 * * *",
            "0 3 L * *",
            "0 3 * * 1,3",
            "*/5 3 * * *",
            "nonsense",
            "",
        ] {
            assert_eq!(describe(rule), None, "{rule}");
        }
    }
}
