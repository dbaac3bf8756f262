//! What would create the same task again: in a shell, over HTTP, in Rust.

use axum::http::{HeaderMap, header};
use maud::{Markup, html};
use task_engine_core::task::DEFAULT_QUEUE;
use task_engine_core::task::TaskDetails;

use crate::app::App;
use crate::shown;

/// Longer parameters are not put into a command, but read from a file.
const INLINE_BYTES_MAX: usize = 8 * 1024;

/// What a new task like this one needs.
struct Like<'a> {
    class: &'a str,
    parameters: &'a str,
    queue: &'a str,
    priority: i32,
    /// Where the parameters are if they are too long.
    file: String,
}

pub(super) fn show(app: &App, task: &TaskDetails, headers: &HeaderMap) -> Markup {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let scheme = if app.access.https { "https" } else { "http" };
    let base = format!("{scheme}://{}{}", host.unwrap_or("127.0.0.1:8642"), app.base);
    let row = &task.row;
    let like = Like {
        class: &row.class,
        parameters: shown::parameters(task),
        queue: &row.queue,
        priority: row.priority,
        file: format!("task-{}-parameters.json", row.id),
    };
    html! {
        section .card {
            h2 { "Create one like it" }
            @if like.is_long() {
                p { "The parameters are long: "
                    a href=(app.path(&format!("/tasks/{}/parameters.json", row.id))) { "download " (like.file) }
                    " first." }
            }
            (snippet("copy-cli", "Command line", &like.command()))
            (snippet("copy-curl", "curl", &like.curl(&base)))
            (snippet("copy-rust", "Rust", &like.rust()))
        }
    }
}

fn snippet(id: &str, title: &str, text: &str) -> Markup {
    html! {
        details .snippet {
            summary { (title) }
            button .quiet type="button" hidden data-copy=(id) { "Copy" }
            pre id=(id) { (text) }
        }
    }
}

impl Like<'_> {
    fn is_long(&self) -> bool {
        self.parameters.len() > INLINE_BYTES_MAX
    }

    fn command(&self) -> String {
        let mut words = vec!["task-engine create".to_owned()];
        if self.queue != DEFAULT_QUEUE {
            words.push(format!("--queue={}", shell(self.queue)));
        }
        if self.priority != 0 {
            words.push(format!("--priority={}", self.priority));
        }
        if self.class.starts_with('-') {
            words.push("--".to_owned());
        }
        words.push(shell(self.class));
        words.push(if self.is_long() { format!("@{}", self.file) } else { shell(self.parameters) });
        words.join(" ")
    }

    fn curl(&self, base: &str) -> String {
        let about = serde_json::json!({
            "class": self.class, "queue": self.queue, "priority": self.priority,
        });
        let about = about.to_string();
        let (url, about) = (shell(&format!("{base}/api/v1/tasks")), about.trim_end_matches('}'));
        let head = format!(
            "curl {url} \\\n  -H 'content-type: application/json' \\\n  -H \"authorization: Bearer $TASK_ENGINE_TOKEN\" \\\n  "
        );
        if self.is_long() {
            let begin = shell(&format!("{about},\"parameters\":"));
            let file = shell(&self.file);
            return format!(
                "{{ printf '%s' {begin}; cat {file}; printf '}}'; }} |\n{head}--data-binary @-"
            );
        }
        // The parameters as they are: numbers keep their digits.
        let body = format!("{about},\"parameters\":{}}}", self.parameters);
        format!("{head}--data-binary {}", shell(&body))
    }

    fn rust(&self) -> String {
        let parameters = if self.is_long() {
            format!("include_str!({})", literal(&self.file))
        } else {
            literal(self.parameters)
        };
        let mut text = format!(
            "let parameters = Json::parse({parameters})?;\nlet task = NewTask::new({}, parameters)?",
            literal(self.class)
        );
        if self.queue != DEFAULT_QUEUE {
            text += &format!("\n    .queue({})?", literal(self.queue));
        }
        if self.priority != 0 {
            text += &format!("\n    .priority({})", self.priority);
        }
        text + ";\nlet ids = client.create_many(&[task]).await?;"
    }
}

/// A word as a shell takes it.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A text as Rust takes it, with as few escapes as can be.
fn literal(text: &str) -> String {
    if text.contains(['\r', '\u{202e}']) || text.chars().any(|c| c.is_control() && c != '\n') {
        return format!("{text:?}");
    }
    if !text.contains(['"', '\\']) {
        return format!("\"{text}\"");
    }
    let mut hashes = String::from("#");
    while text.contains(&format!("\"{hashes}")) {
        hashes.push('#');
    }
    format!("r{hashes}\"{text}\"{hashes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(class: &'static str, parameters: &'static str) -> Like<'static> {
        Like { class, parameters, queue: "default", priority: 0, file: "f.json".into() }
    }

    #[test]
    fn commands_say_what_is_not_usual() {
        let mut task = like("send_mail", r#"{"to":"ann"}"#);
        assert_eq!(task.command(), r#"task-engine create send_mail '{"to":"ann"}'"#);
        (task.queue, task.priority) = ("my mail", -5);
        assert_eq!(
            task.command(),
            r#"task-engine create '--queue=my mail' --priority=-5 send_mail '{"to":"ann"}'"#
                .replace("'--queue=my mail'", "--queue='my mail'")
        );
        assert!(like("--help", "{}").command().contains(" -- --help "));
    }

    /// A real shell is asked what it understands.
    #[test]
    fn shells_read_back_what_was_meant() {
        let nasty = [
            r#"{"a":"it's $HOME `id` \\ \n \"x\" !! * ~"}"#,
            "it's; rm -rf / & $(id) 'x' \"y\"",
            "ünïcode and \t tab",
            "",
        ];
        for text in nasty {
            let command = format!("printf %s {}", shell(text));
            let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }

    #[test]
    fn curl_sends_the_parameters_digit_by_digit() {
        let big = r#"{"n":1970670598291982290123456789.10}"#;
        let text = like("it's", big).curl("http://127.0.0.1:8642");
        let body = text.split("--data-binary ").nth(1).unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf %s {body}")])
            .output()
            .unwrap();
        let body = String::from_utf8(output.stdout).unwrap();
        assert!(body.contains(big), "{body}");
        let read: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&read["class"], &read["queue"]), (&"it's".into(), &"default".into()));
    }

    #[test]
    fn rust_literals_hold_what_is_in_them() {
        assert_eq!(literal("plain"), "\"plain\"");
        assert_eq!(literal(r#"{"a":1}"#), r###"r#"{"a":1}"#"###);
        assert_eq!(literal("a\"#b"), "r##\"a\"#b\"##");
        assert_eq!(literal("a\r\"b"), r#""a\r\"b""#);
        let text = like("a", "{}").rust();
        assert!(text.contains("NewTask::new(\"a\", parameters)?;"), "{text}");
    }

    #[test]
    fn what_is_long_comes_from_a_file() {
        let long: &'static str = Box::leak(format!("{{\"a\":\"{}\"}}", "x".repeat(9000)).into());
        let task = like("a", long);
        assert_eq!(task.command(), "task-engine create a @f.json");
        assert!(task.curl("http://x").contains("cat f.json") && task.curl("http://x").len() < 500);
        assert!(task.rust().contains("include_str!(\"f.json\")"));
    }
}
