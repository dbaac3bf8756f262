//! Workers that connect to an engine over a socket.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use task_engine_test_harness::{RunningProgram, Sandbox, TestServer, wait_until};

use super::executables::{create, ended, error, execution, is_here, stop};
use super::support::{sandbox, sandbox_on};

/// Connects to its first argument, under the name in its second, with the token in TOKEN.
/// Its tasks name the action.
const WORKER: &str = r#"
import json, os, socket, ssl, sys, time

url, name = sys.argv[1:3]
scheme, _, address = url.partition(":")
if scheme == "unix":
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
else:
    host, port = address.strip("/").rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    if scheme == "tls":
        context = ssl.create_default_context(cafile="cert.pem")
        connection = context.wrap_socket(connection, server_hostname="localhost")
lines = connection.makefile("r", encoding="utf-8")

def send(line):
    connection.sendall((json.dumps(line) + "\n").encode())

send({"protocol": 1, "name": name or None, "token": os.environ.get("TOKEN"), "concurrency": 2,
      "classes": [{"class": "far", "timeout": "30s", "grace": "1s",
                   "retry": {"maximum": 1, "first_delay": "1ms"}}]})
for line in map(json.loads, lines):
    print(json.dumps(line), flush=True)
    if "parameters" not in line: continue
    parameters, id = line["parameters"], line["id"]
    do = parameters.get("do")
    if do == "die" and line["attempt"] == 1: os._exit(3)
    if do == "hang": continue
    if do == "stop": send({"stopping": True})
    if do == "hold":
        while not os.path.exists("go"): time.sleep(0.02)
    send({"id": id, "log": f"from {name}"})
    send({"id": id, "result": parameters.get("value", name)})
print("closed", flush=True)
"#;

struct Remote {
    sandbox: Sandbox,
    url: String,
}

impl Remote {
    /// An engine that listens, and its address.
    fn start(sandbox: Sandbox, arguments: &[&str], token: &str) -> (Self, RunningProgram) {
        fs::write(sandbox.path("worker.py"), WORKER).unwrap();
        let arguments = [&["start", "--instance", "e"], arguments].concat();
        let engine = sandbox.start_with(&arguments, &[("TASK_ENGINE_LISTEN_TOKEN", token)]);
        engine.wait_for_log("Workers connect to: ");
        let err = engine.err();
        let url = err.split("Workers connect to: ").nth(1).and_then(|rest| rest.lines().next());
        (Self { sandbox, url: url.unwrap().to_owned() }, engine)
    }

    fn worker(&self, name: &str, token: &str) -> RunningProgram {
        let arguments = ["worker.py", &self.url, name];
        self.sandbox.start_program(Path::new("python3"), &arguments, &[("TOKEN", token)])
    }

    fn connected(&self, name: &str, token: &str) -> RunningProgram {
        let worker = self.worker(name, token);
        wait_until("the worker is connected", || worker.out().contains("connected"));
        worker
    }
}

/// The state of the last engine session of a name.
fn state(sandbox: &Sandbox, name: &str) -> String {
    let lines = sandbox.ok(&["instances", "--json"]);
    let rows = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut named: Vec<Value> = rows.filter(|row| row["name"] == name).collect();
    named.sort_by_key(|row| row["id"].as_i64());
    named.pop().map_or_else(String::new, |row| row["state"].as_str().unwrap().to_owned())
}

fn workers_connect(sandbox: Sandbox) {
    let (remote, engine) = Remote::start(sandbox, &["--listen", "0"], "s3cret");
    let sandbox = &remote.sandbox;
    // The class is unknown until a worker connects.
    let id = create(sandbox, "far", r#"{"value": "é"}"#);
    let one = remote.connected("w", "s3cret");
    let task = ended(sandbox, &id);
    assert_eq!((&execution(&task, 0)["result"], &task["status"]), (&json!("é"), &json!("stopped")));
    assert_eq!(task["log"][0]["message"], "from w");
    // Two of one name, each with a session.
    let two = remote.connected("w", "s3cret");
    assert!(two.out().contains(r#"{"connected": "w-2"}"#), "{}", two.out());
    let instances = sandbox.ok(&["instances"]);
    assert_eq!(instances.matches("class:far=2").count(), 2, "{instances}");
    // A worker that dies is a process that died: its task is retried by the other one.
    let id = create(sandbox, "far", r#"{"do": "die", "value": 2}"#);
    let task = ended(sandbox, &id);
    // The session of the dead worker may have claimed the retry, too, and released it.
    let last = task["executions"].as_array().and_then(|all| all.last()).unwrap();
    assert_eq!((&task["status"], &last["result"]), (&json!("stopped"), &json!(2)));
    assert!(error(&task).starts_with("ProcessEnded: "), "{}", error(&task));
    assert!(error(&task).contains("its connection was closed"), "{}", error(&task));
    // The engine stops: running tasks finish, then the connection is closed.
    fs::remove_file(sandbox.path("go")).ok();
    let id = create(sandbox, "far", r#"{"do": "hold"}"#);
    wait_until("it runs", || sandbox.status(&id) == "running");
    engine.signal("TERM");
    engine.wait_for_log("SIGTERM");
    fs::write(sandbox.path("go"), "").unwrap();
    let stopped = engine.end();
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(sandbox.status(&id), "stopped");
    let outputs = [one.end(), two.end()].map(|worker| worker.out);
    assert!(outputs.iter().any(|out| out.ends_with("closed\n")), "{outputs:?}");
    assert!(!sandbox.ok(&["instances"]).contains("alive"));
}

#[test]
fn workers_connect_on_sqlite() {
    if is_here("python3") {
        workers_connect(sandbox());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_connect_on_postgresql() {
    if is_here("python3") {
        workers_connect(sandbox_on(&TestServer::shared().create_database().await));
    }
}

#[test]
fn wrong_token_is_refused() {
    if !is_here("python3") {
        return;
    }
    let (remote, engine) = Remote::start(sandbox(), &["--listen", "127.0.0.1:0"], "s3cret");
    for token in ["", "s3cre", "s3cret "] {
        let refused = remote.worker("w", token).end();
        assert!(
            refused.out.starts_with(r#"{"refused": "the token is missing or wrong"#),
            "{refused:?}"
        );
        assert!(refused.out.ends_with("closed\n"), "{refused:?}");
    }
    assert!(!remote.sandbox.ok(&["instances"]).contains("far"));
    assert!(!engine.err().contains("s3cre\""), "{}", engine.err());
    stop(engine);
}

#[test]
fn stopping_worker_gets_no_more_tasks() {
    if !is_here("python3") {
        return;
    }
    let (remote, engine) = Remote::start(sandbox(), &["--listen", "0"], "");
    let sandbox = &remote.sandbox;
    let worker = remote.connected("w", "");
    let id = create(sandbox, "far", r#"{"do": "stop"}"#);
    assert_eq!(ended(sandbox, &id)["status"], "stopped");
    assert!(worker.end().out.ends_with("closed\n"));
    let left = create(sandbox, "far", "{}");
    wait_until("the session has ended", || state(sandbox, "w") == "stopped");
    assert_eq!(sandbox.status(&left), "waiting");
    let _next = remote.connected("w", "");
    assert_eq!(ended(sandbox, &left)["status"], "stopped");
    stop(engine);
}

#[test]
fn silent_worker_is_disconnected() {
    if !is_here("python3") {
        return;
    }
    let (remote, engine) = Remote::start(sandbox(), &["--listen", "0"], "");
    let sandbox = &remote.sandbox;
    let worker = remote.connected("w", "");
    let id = create(sandbox, "far", r#"{"do": "hang"}"#);
    wait_until("it runs", || sandbox.status(&id) == "running");
    sandbox.ok(&["cancel", &id, "--yes"]);
    // It does not answer within its grace.
    assert_eq!(ended(sandbox, &id)["status"], "cancelled");
    assert!(worker.end().out.ends_with("closed\n"));
    stop(engine);
}

#[test]
fn second_signal_releases_remote_tasks() {
    if !is_here("python3") {
        return;
    }
    let (remote, engine) = Remote::start(sandbox(), &["--listen", "0"], "");
    let sandbox = &remote.sandbox;
    let worker = remote.connected("w", "");
    let id = create(sandbox, "far", r#"{"do": "hang"}"#);
    wait_until("it runs", || sandbox.status(&id) == "running");
    engine.signal("TERM");
    engine.wait_for_log("SIGTERM");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(9));
    assert_eq!(sandbox.status(&id), "waiting");
    assert_eq!(sandbox.task(&id)["retry_number"], 0);
    assert!(worker.end().out.ends_with("closed\n"));
}

#[test]
fn unix_socket_and_tls_work() {
    if !is_here("python3") {
        return;
    }
    let sandbox = sandbox();
    let socket = format!("unix:{}", sandbox.path("workers.sock").display());
    // A socket that a killed engine left.
    drop(std::os::unix::net::UnixListener::bind(sandbox.path("workers.sock")).unwrap());
    let (remote, engine) = Remote::start(sandbox, &["--listen", &socket], "not for a socket");
    let worker = remote.connected("", "");
    let id = create(&remote.sandbox, "far", r#"{"value": 1}"#);
    assert_eq!(execution(&ended(&remote.sandbox, &id), 0)["result"], 1);
    let second = remote.sandbox.run(&["start", "--listen", &socket]);
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.err.contains("another program uses this address"), "{}", second.err);
    stop(engine);
    drop(worker);
    assert!(!remote.sandbox.path("workers.sock").exists());

    let sandbox = super::support::sandbox();
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(sandbox.path("cert.pem"), certificate.cert.pem()).unwrap();
    fs::write(sandbox.path("key.pem"), certificate.signing_key.serialize_pem()).unwrap();
    let tls = ["--listen-certificate", "cert.pem", "--listen-key", "key.pem"];
    let arguments = [&["--listen", "0.0.0.0:0"], &tls[..]].concat();
    let (mut remote, engine) = Remote::start(sandbox, &arguments, "t");
    remote.url = remote.url.replace("0.0.0.0", "127.0.0.1");
    let worker = remote.connected("w", "t");
    let large = json!({ "value": "x".repeat(900_000) });
    fs::write(remote.sandbox.path("large"), large.to_string()).unwrap();
    let id = remote.sandbox.run_with_input(&["create", "far", "-"], large.to_string().as_bytes());
    let task = ended(&remote.sandbox, id.out.trim());
    assert_eq!(execution(&task, 0)["result"], large["value"]);
    // Without TLS, the handshake fails and the engine continues.
    let plain = Remote { url: remote.url.replace("tls:", "tcp:"), sandbox: remote.sandbox };
    let refused = plain.worker("w", "t").end();
    assert!(!refused.out.contains("connected"), "{refused:?}");
    drop(worker);
    stop(engine);
}

/// Connections that send nothing keep neither workers nor a stop waiting.
#[test]
fn silent_connections_do_not_block() {
    if !is_here("python3") {
        return;
    }
    let (remote, engine) = Remote::start(sandbox(), &["--listen", "0"], "s3cret");
    let address = remote.url.trim_start_matches("tcp://");
    let silent: Vec<TcpStream> = (0..150).map(|_| TcpStream::connect(address).unwrap()).collect();
    let worker = remote.connected("w", "s3cret");
    let id = create(&remote.sandbox, "far", "{}");
    assert_eq!(ended(&remote.sandbox, &id)["status"], "stopped");
    let began = Instant::now();
    stop(engine);
    assert!(began.elapsed() < Duration::from_secs(8), "handshakes have a limit of 10 s");
    drop((silent, worker));
}

#[test]
fn token_is_not_logged() {
    let (remote, engine) = Remote::start(sandbox(), &["--listen", "0"], "s3cret");
    let mut connection = TcpStream::connect(remote.url.trim_start_matches("tcp://")).unwrap();
    connection.write_all(b"{\"protocol\": 1, \"token\": \"s3cret\", \"classes\": NaN}\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("its first line is not a valid announcement"), "{answer}");
    assert!(!answer.contains("s3cret") && !engine.err().contains("s3cret"), "{}", engine.err());
    stop(engine);
}

#[test]
fn file_is_not_replaced_by_socket() {
    let sandbox = sandbox();
    fs::write(sandbox.path("precious"), "data").unwrap();
    let address = format!("unix:{}", sandbox.path("precious").display());
    let refused = sandbox.run(&["start", "--listen", &address]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("there is a file that is no socket"), "{}", refused.err);
    assert_eq!(fs::read_to_string(sandbox.path("precious")).unwrap(), "data");
}

#[test]
fn unsafe_addresses_are_refused() {
    let sandbox = sandbox();
    fs::write(sandbox.path("empty.pem"), "").unwrap();
    let start = |arguments: &[&str], token: &str| {
        let arguments = [&["start"], arguments].concat();
        sandbox.start_with(&arguments, &[("TASK_ENGINE_LISTEN_TOKEN", token)]).end()
    };
    for (arguments, token, why) in [
        (&["--listen", "0.0.0.0:0"][..], "", "set a token in TASK_ENGINE_LISTEN_TOKEN"),
        (&["--listen", "0.0.0.0:0"], "t", "use TLS (--listen-certificate and --listen-key)"),
        (&["--listen", "host"], "", "is not an address; it looks like 127.0.0.1:8643"),
        (&["--listen-without-tls"], "", "--listen"),
        (
            &["--listen", "0", "--listen-certificate", "empty.pem", "--listen-key", "empty.pem"],
            "",
            "empty.pem cannot be used for TLS",
        ),
    ] {
        let refused = start(arguments, token);
        assert_eq!(refused.code, Some(2), "{arguments:?}: {refused:?}");
        assert!(refused.err.contains(why), "{arguments:?}: {}", refused.err);
    }
}
