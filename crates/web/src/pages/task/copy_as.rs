//! Snippets that create the same task: shell, curl, Rust.

use axum::http::{HeaderMap, header};
use maud::{Markup, html};
use task_engine_core::task::DEFAULT_QUEUE;
use task_engine_core::task::TaskDetails;

use crate::app::App;

/// Longer parameters are read from a file.
const INLINE_BYTES_MAX: usize = 8 * 1024;

/// The fields of a similar task.
struct TaskTemplate<'a> {
    class: &'a str,
    parameters: &'a str,
    queue: &'a str,
    priority: i32,
    /// The file of long parameters.
    file: String,
}

pub(super) fn show(app: &App, task: &TaskDetails, headers: &HeaderMap) -> Markup {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let scheme = if app.access.https { "https" } else { "http" };
    let base = format!("{scheme}://{}{}", host.unwrap_or("127.0.0.1:8642"), app.base);
    let row = &task.row;
    let template = TaskTemplate {
        class: &row.class,
        parameters: task.parameters.as_str(),
        queue: &row.queue,
        priority: row.priority,
        file: format!("task-{}-parameters.json", row.id),
    };
    html! {
        section .card {
            h2 { "Create a similar task" }
            @if template.is_long() {
                p { "The parameters are long: "
                    a href=(app.path(&format!("/tasks/{}/parameters.json", row.id))) { "download " (template.file) }
                    " first." }
            }
            (snippet("copy-cli", "Command line", &template.command()))
            (snippet("copy-curl", "curl", &template.curl(&base)))
            (snippet("copy-rust", "Rust", &template.rust()))
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

impl TaskTemplate<'_> {
    fn is_long(&self) -> bool {
        self.parameters.len() > INLINE_BYTES_MAX
    }

    fn command(&self) -> String {
        let mut parts = vec!["task-engine create".to_owned()];
        if self.queue != DEFAULT_QUEUE {
            parts.push(format!("--queue={}", shell(self.queue)));
        }
        if self.priority != 0 {
            parts.push(format!("--priority={}", self.priority));
        }
        if self.class.starts_with('-') {
            parts.push("--".to_owned());
        }
        parts.push(shell(self.class));
        parts.push(if self.is_long() { format!("@{}", self.file) } else { shell(self.parameters) });
        parts.join(" ")
    }

    fn curl(&self, base: &str) -> String {
        let fields = serde_json::json!({
            "class": self.class, "queue": self.queue, "priority": self.priority,
        });
        let fields = fields.to_string();
        let (url, fields) = (shell(&format!("{base}/api/v1/tasks")), fields.trim_end_matches('}'));
        let head = format!(
            "curl {url} \\\n  -H 'content-type: application/json' \\\n  -H \"authorization: Bearer $TASK_ENGINE_TOKEN\" \\\n  "
        );
        if self.is_long() {
            let begin = shell(&format!("{fields},\"parameters\":"));
            let file = shell(&self.file);
            return format!(
                "{{ printf '%s' {begin}; cat {file}; printf '}}'; }} |\n{head}--data-binary @-"
            );
        }
        // Unparsed: numbers keep their digits.
        let body = format!("{fields},\"parameters\":{}}}", self.parameters);
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

/// Quotes a word for a shell.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A Rust literal with few escapes.
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
mod tests;
