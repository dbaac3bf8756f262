//! Tasks as executables: what they get and give, and that nothing of them is
//! left, with real processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{RunningProgram, Sandbox, not_run, wait_until};

const ENDED: [&str; 3] = ["stopped", "failed", "cancelled"];

/// A class whose code is a shell script.
pub(super) fn class(name: &str, settings: &str, script: &str) -> String {
    format!("[class.{name}]\n{settings}\ncommand = [\"sh\", \"-c\", '''{script}''']\n")
}

pub(super) fn file(sandbox: &Sandbox, text: &str) {
    fs::write(sandbox.path("task-engine.toml"), text).unwrap();
}

pub(super) fn create(sandbox: &Sandbox, class: &str, parameters: &str) -> String {
    sandbox.ok(&["create", class, parameters]).trim().to_owned()
}

pub(super) fn ended(sandbox: &Sandbox, id: &str) -> Value {
    wait_until(format!("task {id} ends"), || ENDED.contains(&sandbox.status(id).as_str()));
    sandbox.task(id)
}

pub(super) fn execution(task: &Value, number: usize) -> &Value {
    &task["executions"][number]
}

pub(super) fn error(task: &Value) -> String {
    let error = &execution(task, 0)["error"];
    format!("{}: {}", error["exception"].as_str().unwrap(), error["message"].as_str().unwrap())
}

/// The processes that have written their numbers to a file.
pub(super) fn pids(sandbox: &Sandbox) -> Vec<u32> {
    let text = fs::read_to_string(sandbox.path("pids")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

pub(super) fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(super) fn stop(engine: RunningProgram) {
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/executables").join(file)
}

/// Whether a language is installed; if not, prints that.
pub(super) fn is_here(program: &str) -> bool {
    let here = Command::new(program).arg("--version").output().is_ok();
    if !here {
        not_run("executables", &format!("{program} is missing"));
    }
    here
}

pub(super) fn copy_examples(sandbox: &Sandbox) {
    for entry in fs::read_dir(example("")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), sandbox.path(entry.file_name().to_str().unwrap())).unwrap();
    }
}

/// Writes the numbers of a process, of a child in its group, and of a daemon
/// in its own session; none of them obeys SIGTERM.
const STUBBORN: &str = r#"
trap "" TERM
sleep 1000 & echo $! >> pids
setsid sh -c "echo \$\$ >> pids; sleep 1001" &
echo $$ >> pids
echo ready >&2
while :; do sleep 1000; done
"#;

fn script_runs_as_task(sandbox: &Sandbox) {
    for name in ["task-engine.toml", "greet.sh"] {
        fs::copy(example(name), sandbox.path(name)).unwrap();
    }
    assert_eq!(fs::read_to_string(example("task-engine.toml")).unwrap().lines().count(), 3);
    let good = create(sandbox, "greet", r#"{"name": "Ada"}"#);
    let bad = create(sandbox, "greet", "{}");
    let engine = sandbox.start(&["start"]);
    let good = ended(sandbox, &good);
    assert_eq!(execution(&good, 0)["result"], json!({"greeting": "Hello, Ada!"}));
    assert_eq!(good["log"][0]["message"], "greeting Ada, attempt 1");
    let bad = ended(sandbox, &bad);
    assert_eq!(bad["executions"].as_array().unwrap().len(), 1, "not retried");
    assert!(error(&bad).starts_with("ExitCode100: exit code 100: name is missing"));
    stop(engine);
}

#[test]
fn script_runs_as_task_on_sqlite() {
    script_runs_as_task(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn script_runs_as_task_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    script_runs_as_task(&sandbox_on(&url));
}

#[test]
fn examples_run_if_language_is_installed() {
    let cases = [
        ("greet", "sh", r#"{"name": "Ada"}"#, json!({"greeting": "Hello, Ada!"})),
        ("word_count", "python3", r#"{"text": "a b b"}"#, json!({"words": 3, "different": 2})),
        (
            "checksum",
            "ruby",
            r#"{"text": "abc"}"#,
            json!({"sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}),
        ),
        ("slugify", "node", r#"{"title": "Héllo, World"}"#, json!({"slug": "hello-world"})),
        ("add", "python3", r#"{"a": 1, "b": 2}"#, json!(3)),
        ("multiply", "python3", r#"{"a": 3, "b": 2}"#, json!(6)),
    ];
    let sandbox = sandbox();
    copy_examples(&sandbox);
    let cases: Vec<_> = cases.into_iter().filter(|case| is_here(case.1)).collect();
    // A file that names a missing program is refused; so what is missing goes.
    let all = fs::read_to_string(example("all.toml")).unwrap();
    let tables = all.split("\n[").skip(1);
    let is_kept = |table: &&str| {
        let is_class = cases.iter().any(|case| table.starts_with(&format!("class.{}]", case.0)));
        is_class || (table.starts_with("worker.") && is_here("python3"))
    };
    file(&sandbox, &tables.filter(is_kept).map(|table| format!("[{table}\n")).collect::<String>());
    let engine = sandbox.start(&["start"]);
    for (class, _, parameters, result) in cases {
        let task = ended(&sandbox, &create(&sandbox, class, parameters));
        assert_eq!(execution(&task, 0)["result"], result, "{class}: {task}");
    }
    stop(engine);
}

#[test]
fn executable_environment_is_isolated() {
    let sandbox = sandbox();
    fs::create_dir(sandbox.path("inside")).unwrap();
    let settings =
        "env = { COLOUR = \"blue\" }\npass_env = [\"CARGO_PKG_NAME\"]\nfolder = \"inside\"";
    file(&sandbox, &class("facts", settings, "pwd >&2; env >&2; cat"));
    let id =
        sandbox.ok(&["create", "facts", r#"{"n": 12345678901234567890}"#, "--correlation", "c-7"]);
    let engine = sandbox.start(&["start"]);
    let task = ended(&sandbox, id.trim());
    assert_eq!(execution(&task, 0)["result"], task["parameters"], "not a digit is lost");
    let lines: Vec<&str> =
        task["log"].as_array().unwrap().iter().map(|l| l["message"].as_str().unwrap()).collect();
    assert!(lines[0].ends_with("/inside"), "{lines:?}");
    for there in [
        "TASK_ENGINE_TASK_ID=1",
        "TASK_ENGINE_ATTEMPT=1",
        "TASK_ENGINE_RETRY_NUMBER=0",
        "TASK_ENGINE_CORRELATION_ID=c-7",
        "TASK_ENGINE_CLASS=facts",
        "COLOUR=blue",
        "CARGO_PKG_NAME=task-engine-cli",
    ] {
        assert!(lines.contains(&there), "{there}: {lines:?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("PATH=/")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("LANG=")), "{lines:?}");
    assert!(std::env::var("CARGO_PKG_VERSION").is_ok(), "there is something to hide");
    assert!(!lines.iter().any(|line| line.starts_with("CARGO_PKG_VERSION")), "{lines:?}");
    stop(engine);
}

#[test]
fn exit_codes_are_recorded_as_documented() {
    let sandbox = sandbox();
    let never = "retry = { maximum = 0 }";
    file(
        &sandbox,
        &[
            class("Empty", never, "true"),
            class("Code", never, "echo one >&2; echo two >&2; exit 3"),
            class("Signal", never, "kill -SEGV $$"),
            class("Words", never, "echo hello there"),
            class("TwoValues", never, "echo 1; echo 2"),
            class("Later", "", "echo '{\"retry_after\": \"1h\"}'; echo busy >&2; exit 75"),
            class("LaterByRule", "retry = { first_delay = \"2h\" }", "exit 75"),
            class("Never", "", "exit 100"),
            class("Closed", never, "exec >&- 2>&-; exit 0"),
            class("Deep", never, "printf '[%.0s' $(seq 100); printf ']%.0s' $(seq 100)"),
        ]
        .concat()
        .replace("'\\''", "'"),
    );
    let engine = sandbox.start(&["start"]);
    let run = |class: &str| ended(&sandbox, &create(&sandbox, class, "{}"));
    assert_eq!(execution(&run("Empty"), 0)["result"], Value::Null);
    assert_eq!(run("Empty")["status"], "stopped");
    let code = run("Code");
    assert_eq!(error(&code), "ExitCode3: exit code 3: two");
    assert_eq!(execution(&code, 0)["error"]["backtrace"], json!(["one", "two"]));
    assert_eq!(error(&run("Signal")), "KilledBySignal: killed by signal 11 (SIGSEGV)");
    assert_eq!(execution(&run("Words"), 0)["result"], "hello there");
    assert_eq!(execution(&run("TwoValues"), 0)["result"], "1\n2");
    assert_eq!(error(&run("Never")), "ExitCode100: exit code 100");
    assert_eq!(run("Never")["status"], "failed");
    assert_eq!(run("Closed")["status"], "stopped");
    assert_eq!(run("Deep")["status"], "stopped");
    for (class, hours) in [("Later", 1), ("LaterByRule", 2)] {
        let id = create(&sandbox, class, "{}");
        let attempts = || sandbox.task(&id)["executions"].as_array().map_or(0, Vec::len);
        wait_until("the first attempt", || attempts() == 1 && sandbox.status(&id) == "waiting");
        let task = sandbox.task(&id);
        assert_eq!(execution(&task, 0)["status"], "snoozed", "{task}");
        assert_eq!(task["retry_number"], 0, "no retry is used: {task}");
        let time = |key: &str| task[key].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let wait = time("scheduled_at").duration_since(jiff::Timestamp::now());
        let minutes = wait.as_secs() / 60;
        assert!((hours * 60 - 3..=hours * 60).contains(&minutes), "{class}: {minutes} minutes");
    }
    stop(engine);
}

#[test]
fn missing_program_fails_task_only() {
    let sandbox = sandbox();
    fs::copy(example("greet.sh"), sandbox.path("gone.sh")).unwrap();
    fs::copy(example("greet.sh"), sandbox.path("bare.sh")).unwrap();
    fs::write(sandbox.path("bare.sh"), "echo 1\n").unwrap();
    let classes = ["gone", "bare"].map(|name| {
        format!("[class.{name}]\ncommand = [\"{name}.sh\"]\nretry = {{ maximum = 0 }}\n")
    });
    file(&sandbox, &classes.concat());
    let engine = sandbox.start(&["start"]);
    engine.wait_for_log("started with");
    fs::remove_file(sandbox.path("gone.sh")).unwrap();
    let task = ended(&sandbox, &create(&sandbox, "gone", "{}"));
    assert!(error(&task).starts_with("NotStarted: "), "{task}");
    assert!(error(&task).contains("gone.sh cannot be started: No such file"), "{task}");
    let task = ended(&sandbox, &create(&sandbox, "bare", "{}"));
    assert!(error(&task).contains("must name its interpreter, like #!/bin/sh"), "{task}");
    stop(engine);
}

#[test]
fn floods_and_silence_block_no_task() {
    let sandbox = sandbox();
    let never = "retry = { maximum = 0 }";
    file(
        &sandbox,
        &[
            class("FloodOut", never, "yes"),
            class("SmallLimit", "result_bytes = 5\nretry = { maximum = 0 }", "echo 12345678"),
            class(
                "FloodErr",
                never,
                "head -c 30000000 /dev/zero | tr '\\0' 'x' >&2; yes | head -n 200000 >&2; echo 7",
            ),
            class("Quiet", "log_lines = 2", "seq 10 >&2"),
            class("Deaf", never, "exec <&-; sleep 0.1; echo 1"),
            class("NotReading", never, "sleep 0.1; echo 2"),
        ]
        .concat()
        .replace("tr '\\0' 'x'", "tr \\\\0 x"),
    );
    let engine = sandbox.start(&["start"]);
    let large = json!({ "x": "y".repeat(900_000) }).to_string();
    let run_with = |class: &str, parameters: &str| {
        let created = sandbox.run_with_input(&["create", class, "-"], parameters.as_bytes());
        ended(&sandbox, created.out.trim())
    };
    let run = |class: &str| run_with(class, "{}");
    let flood = run("FloodOut");
    assert!(
        error(&flood).starts_with("ResultTooLong: it printed more than 1048576 bytes"),
        "{flood}"
    );
    assert!(error(&run("SmallLimit")).contains("more than 5 bytes"));
    let flood = run("FloodErr");
    assert_eq!(execution(&flood, 0)["result"], 7, "{}", flood["status"]);
    assert_eq!(execution(&flood, 0)["log_lines"], 200_000, "all are counted");
    let quiet = run("Quiet");
    assert_eq!(execution(&quiet, 0)["log_lines"], 10, "all are counted");
    let kept: Vec<_> = quiet["log"].as_array().unwrap().iter().map(|row| &row["line"]).collect();
    assert_eq!(kept, [1, 10], "the first and the last");
    assert_eq!(execution(&run_with("Deaf", &large), 0)["result"], 1);
    assert_eq!(execution(&run_with("NotReading", &large), 0)["result"], 2);
    stop(engine);
}

/// Short executables end before their supervisors have read all frames.
#[test]
fn many_short_executables_succeed() {
    let sandbox = sandbox();
    file(&sandbox, &class("short", "retry = { maximum = 0 }", ":"));
    sandbox.ok(&["create", "short", "{}", "--count", "200"]);
    let engine = sandbox.start(&["start", "--workers", "8"]);
    wait_until("all end", || {
        sandbox.tasks().iter().all(|task| ENDED.contains(&task["status"].as_str().unwrap()))
    });
    assert!(sandbox.tasks().iter().all(|task| task["status"] == "stopped"));
    stop(engine);
}

#[test]
fn log_is_live() {
    let sandbox = sandbox();
    file(&sandbox, &class("talks", "", "echo first >&2; while [ ! -e go ]; do sleep 0.02; done"));
    let id = create(&sandbox, "talks", "{}");
    let engine = sandbox.start(&["start"]);
    wait_until("the first line", || sandbox.ok(&["logs", &id]).contains("first"));
    assert_eq!(sandbox.status(&id), "running");
    fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(ended(&sandbox, &id)["status"], "stopped");
    stop(engine);
}

#[test]
fn timeout_kills_whole_process_tree() {
    let sandbox = sandbox();
    let settings = "timeout = \"3s\"\ngrace = \"300ms\"\nretry = { maximum = 0 }";
    let obeys = "trap \"echo bye >&2; exit 0\" TERM; while :; do sleep 0.02; done";
    file(
        &sandbox,
        &[class("stubborn", settings, STUBBORN), class("obeys", settings, obeys)].concat(),
    );
    let (id, obeying) = (create(&sandbox, "stubborn", "{}"), create(&sandbox, "obeys", "{}"));
    let engine = sandbox.start(&["start"]);
    let task = ended(&sandbox, &id);
    assert!(
        error(&task).starts_with("Timeout: not finished after 3 s; killed by signal 9"),
        "{task}"
    );
    // Not "soon after": the attempt ends when its processes have.
    assert_eq!(pids(&sandbox).len(), 3);
    assert!(!pids(&sandbox).into_iter().any(lives));
    let task = ended(&sandbox, &obeying);
    assert!(error(&task).starts_with("Timeout: not finished after 3 s; exit code 0"), "{task}");
    assert!(task["log"].as_array().unwrap().iter().any(|line| line["message"] == "bye"), "{task}");
    stop(engine);
}

#[test]
fn started_processes_end_with_attempt() {
    let sandbox = sandbox();
    let script = r#"
sleep 1000 & echo $! >> pids
setsid sh -c "echo \$\$ >> pids; exec sleep 1001" &
while [ $(wc -l < pids) -lt 2 ]; do sleep 0.02; done
echo 5"#;
    file(&sandbox, &class("leaves", "", script));
    let engine = sandbox.start(&["start"]);
    let task = ended(&sandbox, &create(&sandbox, "leaves", "{}"));
    assert_eq!(execution(&task, 0)["result"], 5);
    assert!(!pids(&sandbox).into_iter().any(lives), "{:?}", pids(&sandbox));
    stop(engine);
}

fn cancelling(sandbox: &Sandbox) {
    let obeys = "trap \"echo bye >&2; exit 4\" TERM; echo ready >&2; while :; do sleep 0.02; done";
    let finishes = "trap \"echo 9; exit 0\" TERM; echo ready >&2; while :; do sleep 0.02; done";
    let stubborn = class("stubborn", "grace = \"300ms\"", STUBBORN);
    let classes = [class("obeys", "", obeys), class("finishes", "", finishes), stubborn];
    file(sandbox, &classes.concat());
    let engine = sandbox.start(&["start"]);
    let cancel = |class: &str| {
        let id = create(sandbox, class, "{}");
        wait_until("it runs", || sandbox.ok(&["logs", &id]).contains("ready"));
        sandbox.run(&["cancel", &id, "--wait"]);
        ended(sandbox, &id)
    };
    let task = cancel("obeys");
    assert_eq!(
        (&task["status"], &execution(&task, 0)["cancel"]["outcome"]),
        (&json!("cancelled"), &json!("acknowledged"))
    );
    assert!(error(&task).contains("exit code 4: bye"), "{task}");
    let task = cancel("finishes");
    assert_eq!((&task["status"], &execution(&task, 0)["result"]), (&json!("stopped"), &json!(9)));
    let task = cancel("stubborn");
    assert_eq!(
        (&task["status"], &execution(&task, 0)["cancel"]["outcome"]),
        (&json!("cancelled"), &json!("killed"))
    );
    wait_until("nothing is left", || !pids(sandbox).into_iter().any(lives));
    assert_eq!(pids(sandbox).len(), 3);
    stop(engine);
}

#[test]
fn cancel_signals_then_kills_on_sqlite() {
    cancelling(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_signals_then_kills_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    cancelling(&sandbox_on(&url));
}

/// An engine with a stubborn executable that has started all it will.
fn stubborn_engine(sandbox: &Sandbox) -> (RunningProgram, String) {
    file(sandbox, &class("stubborn", "", STUBBORN));
    let id = create(sandbox, "stubborn", "{}");
    let engine = sandbox.start(&["start"]);
    wait_until("all processes run", || pids(sandbox).len() == 3);
    assert!(pids(sandbox).into_iter().all(lives));
    (engine, id)
}

#[test]
fn forced_stop_leaves_no_process() {
    let sandbox = sandbox();
    let (engine, id) = stubborn_engine(&sandbox);
    engine.signal("TERM");
    engine.wait_for_log("running tasks finish");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(9));
    wait_until("nothing is left", || !pids(&sandbox).into_iter().any(lives));
    assert_eq!(sandbox.status(&id), "waiting");
}

#[test]
fn killed_engine_leaves_no_process() {
    let sandbox = sandbox();
    let (engine, _) = stubborn_engine(&sandbox);
    engine.signal("KILL");
    assert_eq!(engine.end().code, None);
    wait_until("nothing is left", || !pids(&sandbox).into_iter().any(lives));
}

#[test]
fn killed_supervisor_is_noticed() {
    let sandbox = sandbox();
    let script = "cat >/dev/null; echo $$ >> pids; kill -9 $PPID; while :; do sleep 1000; done";
    file(&sandbox, &class("patricide", "retry = { maximum = 0 }", script));
    let engine = sandbox.start(&["start"]);
    let task = ended(&sandbox, &create(&sandbox, "patricide", "{}"));
    assert!(error(&task).starts_with("Unsupervised: "), "{task}");
    wait_until("nothing is left", || !pids(&sandbox).into_iter().any(lives));
    stop(engine);
}

#[test]
fn executable_finishes_when_engine_stops() {
    let sandbox = sandbox();
    file(
        &sandbox,
        &class("slow", "", "echo ready >&2; while [ ! -e go ]; do sleep 0.02; done; echo 1"),
    );
    let id = create(&sandbox, "slow", "{}");
    let engine = sandbox.start(&["start"]);
    wait_until("it runs", || sandbox.ok(&["logs", &id]).contains("ready"));
    engine.signal("INT");
    engine.wait_for_log("running tasks finish");
    fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(engine.end().code, Some(0));
    assert_eq!(execution(&sandbox.task(&id), 0)["result"], 1);
}

#[test]
fn class_sets_queue_and_priority() {
    let sandbox = sandbox();
    file(&sandbox, &class("mail", "queue = \"post\"\npriority = 7", "echo 1"));
    let id = create(&sandbox, "mail", "{}");
    let task = sandbox.task(&id);
    assert_eq!((&task["queue"], &task["priority"]), (&json!("post"), &json!(7)));
    let other = sandbox.ok(&["create", "mail", "--queue", "default", "--priority", "-1"]);
    let task = sandbox.task(other.trim());
    assert_eq!((&task["queue"], &task["priority"]), (&json!("default"), &json!(-1)));
    // Both queues are served without a word.
    let engine = sandbox.start(&["start"]);
    assert_eq!(ended(&sandbox, &id)["status"], "stopped");
    assert_eq!(ended(&sandbox, other.trim())["status"], "stopped");
    stop(engine);
}

#[test]
fn check_needs_no_database() {
    let sandbox = sandbox();
    let missing = sandbox.run(&["check"]);
    assert_eq!(missing.code, Some(3));
    assert!(missing.err.contains("there is no file task-engine.toml"), "{}", missing.err);
    file(
        &sandbox,
        "[class.a]\nqueue = \"\"\n\n[class.b]\ncommand = [\"no-such\"]\nprocesses = 2\n",
    );
    for command in [&["check"][..], &["start"], &["start", "--config", "task-engine.toml"]] {
        let wrong = sandbox.run(command);
        assert_eq!((wrong.code, wrong.out.as_str()), (Some(2), ""), "{command:?}: {wrong:?}");
        for words in [
            "4 errors in task-engine.toml:",
            "task-engine.toml:1:8: class a has no command",
            "task-engine.toml:2:9: a queue needs a name",
            "task-engine.toml:5:12: there is no program \"no-such\"",
            "task-engine.toml:6:13: processes is for mode = \"lines\" only",
        ] {
            assert!(wrong.err.contains(words), "{words}: {}", wrong.err);
        }
    }
    let wrong = sandbox.run(&["check", "--json"]);
    let document: Value = serde_json::from_str(&wrong.out).unwrap();
    assert_eq!((wrong.code, document["errors"].as_array().unwrap().len()), (Some(2), 4));
    assert_eq!(
        (&document["errors"][1]["line"], &document["errors"][1]["column"]),
        (&json!(2), &json!(9))
    );
    for (text, words) in [
        ("comand = [\"sh\"]", "2:1: \"comand\" is not known here; did you mean command?"),
        ("command = [\"sh\"]\ntimeout = \"soon\"", "3:11: \"soon\": this is not a duration"),
    ] {
        file(&sandbox, &format!("[class.a]\n{text}\n"));
        let wrong = sandbox.run(&["check"]);
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
        assert!(wrong.err.contains(words), "{}", wrong.err);
    }
    file(&sandbox, "[class.a]\ncommand = [\"sh\"]\n[class.a]\ncommand = [\"sh\"]\n");
    let twice = sandbox.run(&["check"]);
    assert_eq!(twice.code, Some(2));
    assert!(twice.err.contains("task-engine.toml:3:8: "), "{}", twice.err);
    assert!(!sandbox.path("task-engine.db").exists(), "nothing was made");

    let good = sandbox.path("elsewhere.toml");
    fs::write(&good, class("fine", "", "true")).unwrap();
    let checked = sandbox.run(&["check", "elsewhere.toml"]);
    assert_eq!(checked.code, Some(0));
    assert!(checked.out.contains("fine   once  none     default"), "{}", checked.out);
    assert!(checked.err.contains("1 class, no errors"), "{}", checked.err);
    let missing = sandbox.run(&["start", "--config", "nowhere.toml"]);
    assert_eq!(missing.code, Some(3), "{}", missing.err);
}

/// Files in the guide have no errors, and programs in it are the examples.
#[test]
fn guide_shows_working_files() {
    let page = |name: &str| {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        fs::read_to_string(docs.join(name)).unwrap()
    };
    let guide = page("executables.md") + &page("configuration.md");
    let blocks = |language: &str| -> Vec<String> {
        let fence = format!("```{language}\n");
        let parts = guide.split(&fence).skip(1);
        parts.map(|part| format!("{}\n", part.split("\n```").next().unwrap())).collect()
    };
    let sandbox = sandbox();
    copy_examples(&sandbox);
    for name in ["resize.py", "send_mail", "worker.py", "backup.sh"] {
        fs::copy(example("greet.sh"), sandbox.path(name)).unwrap();
    }
    for block in blocks("toml") {
        if !block.contains("python3") || is_here("python3") {
            file(&sandbox, &block);
            sandbox.ok(&["check"]);
        }
    }
    assert_eq!(blocks("toml")[0], fs::read_to_string(example("task-engine.toml")).unwrap());
    let programs = [blocks("bash"), blocks("python")].concat();
    let files = ["greet.sh", "word_count.py", "arithmetic.py"];
    let files = files.map(|name| fs::read_to_string(example(name)).unwrap());
    assert_eq!(programs, files);
}
