use super::*;

fn read(text: &str) -> Result<Vec<Executable>, Vec<String>> {
    parse(text, Path::new("/"), Purpose::Run).map_err(|mistakes| {
        let lines = mistakes.iter();
        lines.map(|m| format!("{}:{}: {}", m.line, m.column, m.message)).collect()
    })
}

fn mistake(text: &str, expected: &str) {
    let mistakes = read(text).expect_err(text);
    assert!(mistakes.iter().any(|m| m.contains(expected)), "{text}\n{mistakes:?}");
}

#[test]
fn three_lines_are_enough() {
    let read = read("[class.hello]\ncommand = [\"sh\", \"-c\", \"true\"]\ntimeout = \"30s\"");
    let [hello] = &read.unwrap()[..] else { panic!("one class") };
    assert_eq!((hello.class.as_str(), hello.mode), ("hello", Mode::Once));
    assert!(hello.program.is_absolute() && hello.program.ends_with("sh"));
    assert_eq!(hello.arguments, ["-c", "true"]);
    assert_eq!(hello.timeout, Some(Duration::from_secs(30)));
    assert_eq!(hello.rules().timeout, None);
}

#[test]
fn everything_can_be_said() {
    let text = r#"
[class."Mail::Send"]
command = ["sh"]
mode = "lines"
processes = 2
concurrency = 8
env = { A = "1" }
pass_env = ["NOT_SET_ANYWHERE"]
folder = "tmp"
timeout = 90
grace = "2s"
retry = { maximum = 3, first_delay = "10s", factor = 1.5, cap = "1h", jitter = 1 }
queue = "mail"
priority = -5
result_bytes = 100
"#;
    let [class] = &read(text).unwrap()[..] else { panic!("one class") };
    assert_eq!(class.mode, Mode::Lines { processes: 2, concurrency: Some(8) });
    assert_eq!((class.retry.maximum, class.retry.factor, class.retry.jitter), (3, 1.5, 1.0));
    assert_eq!((class.queue.as_deref(), class.priority), (Some("mail"), -5));
    assert_eq!(class.result_bytes, 100);
    assert!(class.environment.contains(&("A".to_owned(), "1".to_owned())));
    assert_eq!(class.rules().cancel_grace, Some(Duration::from_secs(2)));
}

#[test]
fn mistakes_have_their_place_and_a_way_out() {
    mistake("", "1:1: there is no class");
    mistake("[class.a]\ncommand = [\"sh\"", "2:");
    mistake(
        "[class.a]\ncomand = [\"sh\"]",
        "2:1: \"comand\" is not a known key; did you mean command?",
    );
    mistake("[class.a]\ncomand = [\"sh\"]", "1:8: class a has no command");
    mistake(
        "[klass.a]\ncommand = [\"sh\"]",
        "1:2: \"klass\" is not a known key; did you mean class?",
    );
    mistake("[class.a]\ncommand = \"sh -c true\"", "[\"sh\", \"-c\", \"true\"]");
    mistake("[class.a]\ncommand = []", "2:11: the command is empty");
    mistake("[class.a]\ncommand = [\"sh\", 1]", "2:18: each of the list is a text");
    mistake("[class.a]\n  command = [\"no-such\"]", "2:14: there is no program \"no-such\"");
    mistake("[class.a]\ncommand = [\"./etc/passwd\"]", "chmod +x");
    mistake(
        "[class.a]\ncommand = [\"sh\"]\ntimeout = \"5 parsecs\"",
        "3:11: timeout = \"5 parsecs\"",
    );
    mistake("[class.a]\ncommand = [\"sh\"]\ntimeout = 0", "3:11: timeout cannot be 0");
    mistake("[class.a]\ncommand = [\"sh\"]\n[class.a]\ncommand = [\"sh\"]", "3:");
    mistake("[class.WaitingTask]\ncommand = [\"sh\"]", "1:8: WaitingTask is a class of the engine");
    mistake("[class.a]\ncommand = [\"sh\"]\nprocesses = 2", "3:1: processes is for mode");
    mistake(
        "[class.a]\ncommand = [\"sh\"]\nmode = \"lines\"\nlog_lines = 1",
        "4:1: log_lines is for",
    );
    mistake("[class.a]\ncommand = [\"sh\"]\nmode = \"line\"", "3:8: a mode is");
    mistake("[class.a]\ncommand = [\"sh\"]\nretry = { max = 2 }", "3:11: \"max\" is not");
    mistake("[class.a]\ncommand = [\"sh\"]\nretry = 2", "3:9: retry is a table");
    mistake(
        "[class.a]\ncommand = [\"sh\"]\nfolder = \"nowhere\"",
        "3:10: there is no folder /nowhere",
    );
    mistake("[class.a]\ncommand = [\"sh\"]\nenv = { \"A=B\" = \"1\" }", "3:9: \"A=B\" cannot be");
    mistake(
        "[class.a]\ncommand = [\"sh\"]\nenv = { TASK_ENGINE_ATTEMPT = \"1\" }",
        "set by the engine",
    );
    mistake("[class.a]\ncommand = [\"sh\"]\npriority = 9999999999", "3:12: priority is a whole");
    mistake("[class.a]\ncommand = [\"sh\"]\nqueue = \"\"", "3:9:");
    mistake("class = 1", "1:9: class is a table");
    mistake("# ü\n[class.ü]\n", "2:");
}

#[test]
fn a_script_names_what_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let told = |first: &str| {
        fs::write(&script, format!("{first}\ntrue\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        find("./script", folder.path()).err()
    };
    assert_eq!(told("#!/bin/sh"), None);
    assert_eq!(told("#! /bin/sh -eu"), None);
    let missing = told("#!/usr/bin/no-such -u").unwrap();
    assert!(missing.ends_with("names /usr/bin/no-such, which does not exist"), "{missing}");
    let windows = told("#!/bin/sh\r").unwrap();
    assert!(windows.contains("the line ends of Windows"), "{windows}");
}

#[test]
fn all_mistakes_are_told_at_once_in_their_order() {
    let text =
        "[class.b]\ncommand = [\"sh\"]\ntimeout = \"x\"\n[class.a]\ncommand = [\"no-such\"]\nx = 1";
    let places = |purpose| -> Vec<_> {
        let mistakes = parse(text, Path::new("/"), purpose).unwrap_err();
        mistakes.iter().map(|mistake| mistake.line).collect()
    };
    assert_eq!(places(Purpose::Run), [3, 5, 6]);
    assert_eq!(places(Purpose::Create), [3, 6]);
}
