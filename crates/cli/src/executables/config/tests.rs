use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::programs::find;
use super::*;

fn read(text: &str) -> Result<Vec<Executable>, Vec<String>> {
    config(text).map(|config| config.classes)
}

fn config(text: &str) -> Result<Config, Vec<String>> {
    parse(text, Path::new("/"), ConfigPurpose::Run).map_err(|errors| {
        let lines = errors.iter();
        lines.map(|e| format!("{}:{}: {}", e.line, e.column, e.message)).collect()
    })
}

fn refused(text: &str, expected: &str) {
    let errors = read(text).expect_err(text);
    assert!(errors.iter().any(|error| error.contains(expected)), "{text}\n{errors:?}");
}

#[test]
fn three_lines_are_enough() {
    let read = read("[class.hello]\ncommand = [\"sh\", \"-c\", \"true\"]\ntimeout = \"30s\"");
    let [hello] = &read.unwrap()[..] else { panic!("one class") };
    let ExecutableMode::Once(program) = &hello.mode else { panic!("{hello:?}") };
    assert_eq!(hello.class, "hello");
    assert!(program.path.is_absolute() && program.path.ends_with("sh"));
    assert_eq!(program.arguments, ["-c", "true"]);
    assert_eq!(hello.timeout, Some(Duration::from_secs(30)));
    assert_eq!(hello.options().timeout, None);
}

#[test]
fn all_keys_are_read() {
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
retry = { maximum = 3, first_delay = "10s", factor = 1.5, cap = "1h", jitter = 1, restart_after_progress = false }
queue = "mail"
priority = -5
result_bytes = 100
"#;
    let [class] = &read(text).unwrap()[..] else { panic!("one class") };
    let ExecutableMode::Lines(worker) = &class.mode else { panic!("{class:?}") };
    assert_eq!((worker.processes, worker.concurrency, worker.slots()), (2, 8, 16));
    assert_eq!((class.retry.maximum, class.retry.factor, class.retry.jitter), (3, 1.5, 1.0));
    assert!(!class.retry.restart_after_progress);
    assert_eq!((class.queue.as_deref(), class.priority), (Some("mail"), -5));
    assert_eq!(class.result_bytes, 100);
    assert!(class.program().environment.contains(&("A".to_owned(), "1".to_owned())));
    assert_eq!(class.options().cancel_grace, Some(Duration::from_secs(2)));
}

#[test]
fn errors_have_position_and_advice() {
    refused("", "1:1: there is no class");
    refused("[class.a]\ncommand = [\"sh\"", "2:");
    refused(
        "[class.a]\ncomand = [\"sh\"]",
        "2:1: \"comand\" is not known here; did you mean command?",
    );
    refused("[class.a]\ntimeout = 1", "1:8: class a has no command");
    refused("[class.a]\nxyzzy = 1", "2:1: \"xyzzy\" is not known here; known are command, worker");
    refused(
        "[klass.a]\ncommand = [\"sh\"]",
        "1:2: \"klass\" is not known here; did you mean class?",
    );
    refused("[class.a]\ncommand = \"sh -c true\"", "[\"sh\", \"-c\", \"true\"]");
    refused("[class.a]\ncommand = []", "2:11: the command is empty");
    refused(
        "[class.a]\ncommand = [\"sh\", 1]",
        "2:18: invalid type: integer `1`, expected a string",
    );
    refused("[class.a]\n  command = [\"no-such\"]", "2:14: there is no program \"no-such\"");
    refused("[class.a]\ncommand = [\"./etc/passwd\"]", "chmod +x");
    refused("[class.a]\ncommand = [\"sh\"]\ntimeout = \"5 parsecs\"", "3:11: \"5 parsecs\"");
    refused("[class.a]\ncommand = [\"sh\"]\ntimeout = 0", "3:11: this duration cannot be 0");
    refused("[class.a]\ncommand = [\"sh\"]\n[class.a]\ncommand = [\"sh\"]", "3:");
    refused("[class.a]\ncommand = [\"sh\"]\nprocesses = 2", "3:13: processes is for mode");
    refused(
        "[class.a]\ncommand = [\"sh\"]\nmode = \"line\"",
        "3:8: \"line\" is not known here; did you mean lines?",
    );
    refused(
        "[class.a]\ncommand = [\"sh\"]\nretry = { max = 2 }",
        "3:11: \"max\" is not known here; known are maximum",
    );
    refused(
        "[class.a]\ncommand = [\"sh\"]\nretry = 2",
        "3:9: invalid type: integer `2`, expected a table",
    );
    refused(
        "[class.a]\ncommand = [\"sh\"]\nfolder = \"nowhere\"",
        "3:10: there is no folder /nowhere",
    );
    refused("[class.a]\ncommand = [\"sh\"]\nenv = { \"A=B\" = \"1\" }", "3:9: \"A=B\" cannot be");
    refused(
        "[class.a]\ncommand = [\"sh\"]\nenv = { TASK_ENGINE_ATTEMPT = \"1\" }",
        "set by the engine",
    );
    refused(
        "[class.a]\ncommand = [\"sh\"]\npriority = 9999999999",
        "3:12: invalid value: integer `9999999999`, expected i32",
    );
    refused("[class.a]\ncommand = [\"sh\"]\nqueue = \"\"", "3:9:");
    refused("class = 1", "1:9: invalid type: integer `1`, expected a map");
    refused("# ü\n[class.ü]\n", "2:");
}

#[test]
fn script_interpreter_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let error = |first: &str| {
        fs::write(&script, format!("{first}\ntrue\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        find("./script", folder.path()).err()
    };
    assert_eq!(error("#!/bin/sh"), None);
    assert_eq!(error("#! /bin/sh -eu"), None);
    let missing = error("#!/usr/bin/no-such -u").unwrap();
    assert!(missing.ends_with("names /usr/bin/no-such, which does not exist"), "{missing}");
    let windows = error("#!/bin/sh\r").unwrap();
    assert!(windows.contains("the line ends of Windows"), "{windows}");
}

#[test]
fn wrong_values_are_reported_together() {
    let text = "[class.b]\ncommand = [\"sh\"]\nqueue = \"\"\n[class.a]\ncommand = [\"no-such\"]\nprocesses = 1";
    let lines = |purpose| -> Vec<_> {
        let errors = parse(text, Path::new("/"), purpose).unwrap_err();
        errors.iter().map(|error| error.line).collect()
    };
    assert_eq!(lines(ConfigPurpose::Run), [3, 5, 6]);
    assert_eq!(lines(ConfigPurpose::Create), [3, 6]);
}

#[test]
fn worker_serves_several_classes() {
    let text = r#"
[worker.python]
command = ["sh"]
classes = ["resize", "thumbnail"]
processes = 2
concurrency = 4

[class.resize]
timeout = "30s"

[class.convert]
worker = "python"
queue = "slow"
"#;
    let classes = read(text).unwrap();
    let names: Vec<_> = classes.iter().map(|one| one.class.as_str()).collect();
    assert_eq!(names, ["convert", "resize", "thumbnail"]);
    let workers: Vec<_> = classes
        .iter()
        .map(|one| match &one.mode {
            ExecutableMode::Lines(worker) => worker.clone(),
            ExecutableMode::Once(_) => panic!("{one:?}"),
        })
        .collect();
    assert!(workers.iter().all(|worker| Arc::ptr_eq(worker, &workers[0])), "one worker for all");
    assert_eq!((workers[0].name.as_str(), workers[0].slots()), ("python", 8));
    assert_eq!(classes[0].queue.as_deref(), Some("slow"));
    assert_eq!(classes[1].timeout, Some(Duration::from_secs(30)));

    let python = "[worker.python]\ncommand = [\"sh\"]\nclasses = [\"a\"]\n";
    refused("[worker.python]\nclasses = [\"a\"]", "1:9: worker python has no command");
    refused(
        &format!("{python}[class.b]\nworker = \"pyton\""),
        "5:10: there is no worker \"pyton\"; did you mean python?",
    );
    refused(
        &format!("{python}[class.a]\ncommand = [\"sh\"]"),
        "5:11: command belongs into [worker.python]",
    );
    refused(
        &format!("{python}[worker.ruby]\ncommand = [\"sh\"]\nclasses = [\"a\"]"),
        "class a is served by worker",
    );
    refused(
        &format!("{python}processes = 1000\nconcurrency = 1000"),
        "1:9: python: processes × concurrency is 1000000",
    );
}

#[test]
fn schedules_are_read() {
    let text = r#"
[class.tidy]
command = ["sh"]
queue = "slow"
priority = 3

[schedule.nightly]
class = "tidy"
cron = "0 3 * * *"
time_zone = "Europe/Paris"
parameters = { deep = true, limits = [1, 2.5], until = 2030-01-01 }
missed = "skip"
overlap = "wait"
limits = { api = "acme" }
jitter = "5s"

[schedule.often]
class = "of_another_engine"
every = "15m"
"#;
    let config = config(text).unwrap();
    let [nightly, often] = &config.schedules[..] else { panic!("{config:?}") };
    let definition = nightly.definition().unwrap();
    assert_eq!((nightly.name(), definition.rule.as_str()), ("nightly", "0 3 * * *"));
    let json = definition.to_json().unwrap().to_string();
    for words in [
        "Europe/Paris",
        "\"deep\":true",
        "[1,2.5]",
        "2030-01-01",
        "slow",
        "tidy",
        "\"api\":\"acme\"",
    ] {
        assert!(json.contains(words), "{words}: {json}");
    }
    assert_eq!(often.definition().unwrap().rule, "every 15m");
    let class = "[class.tidy]\ncommand = [\"sh\"]\n";
    for (schedule, expected) in [
        ("class = \"tidy\"", "3:11: schedule s never runs"),
        ("cron = \"0 3 * * *\"", "3:11: schedule s has no class"),
        (
            "class = \"tidi\"\nevery = \"1h\"",
            "4:9: class \"tidi\" is not in this file; did you mean tidy?",
        ),
        ("class = \"tidy\"\nevery = \"1h\"\ncron = \"0 3 * * *\"", "cron or every, not both"),
        ("class = \"tidy\"\ncron = \"0 25 * * *\"", "5:8: "),
        (
            "class = \"tidy\"\nevery = \"1h\"\ntime_zone = \"Mars\"",
            "6:13: unknown time zone \"Mars\"",
        ),
        ("class = \"tidy\"\nevery = \"1h\"\noverlap = \"maybe\"", "6:11: "),
        ("class = \"tidy\"\nevery = \"1h\"\nparameters = 3", "6:14: invalid type: integer `3`"),
        ("class = \"tidy\"\nevery = \"1h\"\nparameters = { a = nan }", "JSON has no such number"),
        (
            "class = \"tidy\"\nevery = \"1h\"\nlimits = { \"\" = \"x\" }",
            "6:10: a limit needs a name",
        ),
        (
            "class = \"tidy\"\nevery = \"1h\"\ncorn = 1",
            "6:1: \"corn\" is not known here; did you mean cron?",
        ),
    ] {
        refused(&format!("{class}[schedule.s]\n{schedule}"), expected);
    }
}

#[test]
fn limits_are_read() {
    let text = r#"
[class.charge]
command = ["sh"]
limit = 1

[class.sync]
command = ["sh"]
limit = { max = 2, key = "customer_id", weights = { acme = 3 } }
rate = { max = 100, per = "1s" }

[class.post]
command = ["sh"]
in_order = { key = "account" }
limits = [{ name = "smtp", rate = "5/1m", key = "host" }]

[class.call]
command = ["sh"]
rate = { max = 10, per = "1s", key = "customer", even = true }
in_order = true
fair = "region"

[queue.mail]
limit = 5
rate = "100/1s"

[limit.api]
max = 10
rate = { max = 100, per = "1m" }
key = "tenant"
"#;
    let config = config(text).unwrap();
    let of_class = |name: &str| -> Vec<String> {
        let class = config.classes.iter().find(|one| one.class == name).unwrap();
        let limits = class.options().limits;
        let limits = limits.iter().map(|limit| limit.of_class(name));
        limits.map(|limit| format!("{}: {}", limit.name, limit.options)).collect()
    };
    assert_eq!(of_class("charge"), ["charge: max 1"]);
    let sync = ["sync: max 2, key \"customer_id\", 1 weight", "sync.rate: rate 100 per 1 s"];
    assert_eq!(of_class("sync"), sync);
    let post = ["post.order: in order, key \"account\"", "smtp: rate 5 per 1 min, key \"host\""];
    assert_eq!(of_class("post"), post);
    let call = [
        "call.rate: rate 10 per 1 s evenly, key \"customer\"",
        "call.order: in order",
        "call.fair: key \"region\"",
    ];
    assert_eq!(of_class("call"), call);
    let others = config.limits.iter();
    let others: Vec<_> =
        others.map(|one| format!("{} {:?}: {}", one.name, one.target, one.options)).collect();
    assert_eq!(
        others,
        [
            "queue.mail Queue(\"mail\"): max 5",
            "queue.mail.rate Queue(\"mail\"): rate 100 per 1 s",
            "api Named: max 10, rate 100 per 1 min, key \"tenant\"",
        ]
    );
}

#[test]
fn invalid_limits_have_position() {
    let class = "[class.a]\ncommand = [\"sh\"]\n";
    for (text, expected) in [
        ("limit = 0", "3:9: write a whole number from 1 to 10000"),
        ("limit = \"2\"", "3:9: invalid type: string \"2\", expected a number like 2"),
        ("limit = { max = 0 }", "3:17: write a whole number from 1 to 10000"),
        ("limit = { mx = 1 }", "3:11: \"mx\" is not known here; did you mean max?"),
        ("limit = {}", "3:9: limit \"a\" has no effect"),
        ("rate = 5", "3:8: invalid type: integer `5`, expected a rate like"),
        ("rate = \"5\"", "3:8: \"5\": write 1 to 1000000 starts and a window"),
        ("rate = \"5/fortnight\"", "3:8: \"5/fortnight\": "),
        ("rate = { max = 5 }", "3:8: missing field `per`"),
        ("rate = { max = 5, per = \"0s\" }", "3:25: this duration cannot be 0"),
        ("in_order = 1", "3:12: invalid type: integer `1`, expected true, or a table"),
        ("in_order = { kee = \"a\" }", "3:14: \"kee\" is not known here; did you mean key?"),
        ("limit = { max = 2, in_order = true }", "3:9: limit \"a.order\": tasks that run in order"),
        ("fair = \"\"", "3:8: limit \"a.fair\": a key is the name of a parameter"),
        ("limits = [{ max = 1 }]", "3:11: a limit of this list needs a name"),
        ("limit = 1\nlimits = [{ name = \"a\", max = 2 }]", "4:11: limit \"a\" is in this file"),
        ("limit = { max = 1, weights = { x = 0 }, key = \"k\" }", "3:9: limit \"a\": a weight"),
        ("limit = 1\nrate = \"5/1s\"\nfair = \"x\"\nin_order = true", "at most 3 limits"),
        (
            "limit = { max = 1, key = \"card\" }\nsecret = [\"card.number\"]",
            "3:9: the key \"card\" is a secret parameter",
        ),
        ("[queue.mail]", "3:8: queue mail has no limit"),
        ("[queue.mail]\nlimi = 1", "4:1: \"limi\" is not known here; did you mean limit?"),
        ("[limit.api]\nmax = 20000", "4:7: write a whole number"),
        (
            "[limit.api]\nrate = { max = 1, per = \"1s\", key = \"k\" }",
            "4:8: the key belongs to the limit",
        ),
    ] {
        refused(&format!("{class}{text}"), expected);
    }
}

#[test]
fn database_path_is_relative_to_file() {
    let class = "[class.a]\ncommand = [\"sh\"]\n";
    let url = |url: &str, purpose| {
        let text = format!("database = \"{url}\"\n{class}");
        parse(&text, Path::new("/srv/app"), purpose).map(|config| config.database.unwrap())
    };
    assert_eq!(url("sqlite:tasks.db", ConfigPurpose::Run).unwrap(), "sqlite:/srv/app/tasks.db");
    assert_eq!(url("sqlite:/var/a.db", ConfigPurpose::Database).unwrap(), "sqlite:/var/a.db");
    assert_eq!(url("postgres://h/d", ConfigPurpose::Create).unwrap(), "postgres://h/d");
    refused(&format!("database = \"mysql://h/d\"\n{class}"), "1:12: ");
    refused(
        &format!("database = 1\n{class}"),
        "1:12: invalid type: integer `1`, expected a string",
    );
    // A command that needs only the database ignores errors elsewhere.
    let other =
        parse("class = 1\ndatabase = \"sqlite:a.db\"", Path::new("/"), ConfigPurpose::Database);
    assert_eq!(other.unwrap().database.as_deref(), Some("sqlite:/a.db"));
}

/// Files that are cut, changed and joined at random have errors with a position in
/// the file, and never panic.
#[test]
fn mutated_files_never_panic() {
    let good = [
        "database = \"sqlite:a.db\"\n[class.a]\ncommand = [\"sh\", \"-c\", \"true\"]\nenv = { A = \"1\" }\ntimeout = 90\nretry = { maximum = 3, factor = 1.5 }\n",
        "[worker.w]\ncommand = [\"sh\"]\nclasses = [\"a\", \"b\"]\nprocesses = 2\n[class.a]\nworker = \"w\"\nsecret = [\"x.y\"]\n",
        "[schedule.s]\nclass = \"a\"\ncron = \"0 3 * * *\"\ntime_zone = \"Europe/Paris\"\nparameters = { a = 1, b = [1.5, 1979-05-27] }\n",
        "[class.\"Mail::Send\"]\ncommand = [\"./x\"]\nmode = \"lines\"\nqueue = \"q\"\npriority = -5\nlog_lines = 3\n",
        "[class.a]\ncommand = [\"sh\"]\nlimit = { max = 2, key = \"k\" }\nrate = \"5/1s\"\nin_order = true\n[queue.q]\nlimit = 5\n[limit.l]\nmax = 1\nrate = { max = 1, per = \"1s\" }\n",
    ];
    crate::fuzz::mutated(&good, |text| {
        let text = String::from_utf8_lossy(text);
        if let Err(errors) = parse(&text, Path::new("/tmp"), ConfigPurpose::Run) {
            let lines = text.matches('\n').count() + 1;
            assert!(!errors.is_empty());
            assert!(errors.iter().all(|one| one.line <= lines && !one.message.is_empty()));
        }
    });
}
