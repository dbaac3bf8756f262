//! Schedules: recurring tasks, their next slots and their history.

pub(super) mod buttons;
mod form;
pub(super) mod list;
pub(super) mod one;
pub(super) mod preview;
mod rule;
pub(super) mod write;

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::json::Json;
use task_engine_core::schedule::row::ScheduleRow;

use crate::app::App;
use crate::parts;

/// The state; with an error or pause, its reason.
fn state(app: &App, row: &ScheduleRow, now: Timestamp) -> Markup {
    if let Some(error) = &row.state.error {
        return html! { (parts::state("bad", "broken")) div { (error) } };
    }
    if let Err(error) = row.definition() {
        return html! { (parts::state("bad", "unknown")) div { (error) } };
    }
    let Some(pause) = &row.state.paused else { return parts::state("good", "active") };
    html! {
        (parts::state("warn", "paused"))
        " " small { (parts::time(app, pause.at, now)) }
        @if let Some(reason) = &pause.reason { div { (reason) } }
    }
}

/// Parameters on indented lines. Numbers keep their digits.
fn parameters(json: &Json) -> String {
    let (mut text, mut depth, mut in_string, mut escaped) = (String::new(), 0_usize, false, false);
    let mut before = ' ';
    for c in json.as_str().chars() {
        if in_string {
            text.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            before = c;
            continue;
        }
        if c.is_whitespace() {
            continue;
        }
        if matches!(c, '}' | ']') {
            depth = depth.saturating_sub(1);
        }
        let opens = matches!(before, '{' | '[') && !matches!(c, '}' | ']');
        let closes = matches!(c, '}' | ']') && !matches!(before, '{' | '[');
        if opens || closes || before == ',' {
            text.push('\n');
            text.push_str(&"  ".repeat(depth));
        }
        text.push(c);
        match c {
            '{' | '[' => depth += 1,
            ':' => text.push(' '),
            '"' => in_string = true,
            _ => {}
        }
        before = c;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_keep_their_digits() {
        let shown = |text: &str| parameters(&Json::parse(text).unwrap());
        assert_eq!(shown("{}"), "{}");
        assert_eq!(shown(r#"{"a":{},"b":[]}"#), "{\n  \"a\": {},\n  \"b\": []\n}");
        assert_eq!(
            shown(r#"{"n": 12345678901234567890123,"t":"a,{\\\"[:","l":[1.50,true]}"#),
            "{\n  \"n\": 12345678901234567890123,\n  \"t\": \"a,{\\\\\\\"[:\",\n  \"l\": [\n    1.50,\n    true\n  ]\n}"
        );
    }
}
