//! The order, whose engine is killed between all its steps.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use task_engine::core::task::{TaskDetails, TaskListQuery};
use task_engine::postgres::tokio_postgres::{self, NoTls};
use task_engine::{TaskEngine, TaskId, TaskStatus};
use task_engine_test_harness::{TIMEOUT, TestServer};

/// An order in its own database and folder.
struct Scene {
    url: String,
    folder: tempfile::TempDir,
    tasks: TaskEngine,
    id: TaskId,
}

/// What must not happen again.
type Recorded = HashSet<String>;

impl Scene {
    async fn new(place: &[&str]) -> Self {
        let url = TestServer::shared().create_database().await;
        let folder = tempfile::tempdir().unwrap();
        let placed = command(&url, folder.path(), place).output().unwrap();
        assert!(placed.status.success(), "{placed:?}");
        let id = TaskId(String::from_utf8(placed.stdout).unwrap().trim().parse().unwrap());
        let tasks = TaskEngine::connect(&url).await.unwrap();
        let scene = Self { url, folder, tasks, id };
        assert!(Command::new("mkfifo").arg(scene.effects()).status().unwrap().success());
        scene
    }

    fn start(&self, arguments: &[&str]) -> Engine {
        Engine(command(&self.url, self.folder.path(), arguments).spawn().unwrap())
    }

    /// The recorded steps. The parcel is sent by a child task.
    async fn recorded(&self) -> Recorded {
        let stored = self.tasks.store().steps(self.id).await.unwrap();
        let mut all: Recorded = stored.steps.into_iter().map(|step| step.name).collect();
        all.remove("ship");
        let (status, class) = (Some(TaskStatus::Stopped), Some("ship".to_owned()));
        let shipped = TaskListQuery { status, class, limit: 1, ..TaskListQuery::default() };
        if !self.tasks.list(&shipped).await.unwrap().is_empty() {
            all.insert("ship".to_owned());
        }
        all
    }

    async fn task(&self) -> TaskDetails {
        self.tasks.get(self.id).await.unwrap().unwrap()
    }

    async fn stock(&self, item: &str) -> i64 {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let items = "SELECT items FROM stock WHERE item = $1";
        client.query_one(items, &[&item]).await.unwrap().get(0)
    }

    /// Kills the engine before the first effect, then after every effect, once at once and
    /// once when it is recorded. Returns the effects, without those that were repeated, and
    /// the result.
    async fn complete(&self, answer: Option<&str>) -> (Vec<String>, String) {
        let engine = self.start(&["run"]);
        self.wait_for_record("reserve").await;
        drop(engine);
        let (mut effects, mut answer) = (Vec::new(), answer);
        for until_recorded in [false, true].into_iter().cycle() {
            let done = self.recorded().await;
            let engine = self.start(&["run"]);
            let happened = self.next_effects(&mut answer).await;
            let Some(last) = happened.last() else { break };
            let again = happened.iter().find(|effect| done.contains(*effect));
            assert_eq!(again, None, "it was recorded, and happened again");
            if until_recorded {
                // The change of the stock follows without another effect.
                self.wait_for_record(if last == "refund" { "release" } else { last }).await;
            }
            drop(engine);
            effects.extend(happened);
        }
        effects.dedup();
        let task = self.task().await;
        assert_eq!(task.row.status, TaskStatus::Stopped, "{task:?}");
        let result = task.executions.last().unwrap().result.as_ref().unwrap();
        (effects, result.decode().unwrap())
    }

    async fn wait_for_record(&self, name: &str) {
        let begun = Instant::now();
        while !self.recorded().await.contains(name) {
            assert!(begun.elapsed() < TIMEOUT, "{name}: {:?}", self.task().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The names of the next effects, usually one; none if the order has ended. Answers the
    /// order when it waits.
    async fn next_effects(&self, answer: &mut Option<&str>) -> Vec<String> {
        let (begun, effects) = (Instant::now(), self.effects());
        let file = effects.clone();
        let mut lines = tokio::task::spawn_blocking(move || std::fs::read_to_string(file).unwrap());
        loop {
            assert!(begun.elapsed() < TIMEOUT, "{:?}", self.task().await);
            if let Ok(lines) = tokio::time::timeout(Duration::from_millis(5), &mut lines).await {
                let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
                return lines.unwrap().lines().map(name).collect();
            }
            if answer.is_some() && self.recorded().await.contains("approved") {
                let (answer, id) = (answer.take().unwrap(), self.id.to_string());
                assert!(self.start(&[answer, &id]).0.wait().unwrap().success());
            }
            let status = self.task().await.row.status;
            if !matches!(status, TaskStatus::Waiting | TaskStatus::Running) {
                // Ends the reader: it finds an empty file.
                drop(File::options().read(true).write(true).open(&effects).unwrap());
            }
        }
    }

    /// A pipe: every effect waits until the test reads it.
    fn effects(&self) -> PathBuf {
        self.folder.path().join("effects.txt")
    }
}

fn command(url: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_order"));
    command.args(arguments).env("DATABASE_URL", url).current_dir(folder);
    command
}

const UNDONE: [&str; 3] = ["charge", "refund", "notify"];

/// Killed when it is dropped.
struct Engine(Child);

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_order_survives_kills() {
    let scene = Scene::new(&["place", "lamp"]).await;
    let (effects, result) = scene.complete(Some("approve")).await;
    assert_eq!(effects, ["charge", "ship", "notify"]);
    assert_eq!(result, "delivered");
    assert_eq!(scene.stock("lamp").await, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_order_is_undone() {
    let scene = Scene::new(&["place", "lamp"]).await;
    let (effects, result) = scene.complete(Some("refuse")).await;
    assert_eq!(effects, UNDONE);
    assert_eq!(result, "cancelled: refused by ada");
    assert_eq!(scene.stock("lamp").await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_order_is_undone() {
    let scene = Scene::new(&["place", "lamp", "1"]).await;
    let (effects, result) = scene.complete(None).await;
    assert_eq!(effects, UNDONE);
    assert_eq!(result, "cancelled: not approved in time");
    assert_eq!(scene.stock("lamp").await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn unshippable_order_is_undone() {
    let scene = Scene::new(&["place", "piano"]).await;
    let (effects, result) = scene.complete(Some("approve")).await;
    assert_eq!(effects, UNDONE);
    assert_eq!(result, "cancelled: not shipped: too heavy for the courier");
    assert_eq!(scene.stock("piano").await, 10);
}
