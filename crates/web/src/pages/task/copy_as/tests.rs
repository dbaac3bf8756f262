use super::*;

fn template(class: &'static str, parameters: &'static str) -> TaskTemplate<'static> {
    TaskTemplate { class, parameters, queue: "default", priority: 0, file: "f.json".into() }
}

#[test]
fn command_omits_defaults() {
    let mut task = template("send_mail", r#"{"to":"ann"}"#);
    assert_eq!(task.command(), r#"task-engine create send_mail '{"to":"ann"}'"#);
    (task.queue, task.priority) = ("my mail", -5);
    assert_eq!(
        task.command(),
        r#"task-engine create '--queue=my mail' --priority=-5 send_mail '{"to":"ann"}'"#
            .replace("'--queue=my mail'", "--queue='my mail'")
    );
    assert!(template("--help", "{}").command().contains(" -- --help "));
}

/// With a real shell.
#[test]
fn quoting_survives_a_shell() {
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
fn curl_keeps_all_digits() {
    let big = r#"{"n":1970670598291982290123456789.10}"#;
    let text = template("it's", big).curl("http://127.0.0.1:8642");
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
fn rust_literals_round_trip() {
    assert_eq!(literal("plain"), "\"plain\"");
    assert_eq!(literal(r#"{"a":1}"#), r###"r#"{"a":1}"#"###);
    assert_eq!(literal("a\"#b"), "r##\"a\"#b\"##");
    assert_eq!(literal("a\r\"b"), r#""a\r\"b""#);
    let text = template("a", "{}").rust();
    assert!(text.contains("NewTask::new(\"a\", parameters)?;"), "{text}");
}

#[test]
fn long_parameters_use_a_file() {
    let long: &'static str = Box::leak(format!("{{\"a\":\"{}\"}}", "x".repeat(9000)).into());
    let task = template("a", long);
    assert_eq!(task.command(), "task-engine create a @f.json");
    assert!(task.curl("http://x").contains("cat f.json") && task.curl("http://x").len() < 500);
    assert!(task.rust().contains("include_str!(\"f.json\")"));
}
