//! The order, whose engine is killed between all its steps.

use std::collections::HashSet;
use std::path::Path;
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
        Self { url, folder, tasks, id }
    }

    fn start(&self, arguments: &[&str]) -> Engine {
        Engine(command(&self.url, self.folder.path(), arguments).spawn().unwrap())
    }

    /// The names of the effects, in their order.
    fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("effects.txt"));
        let text = text.unwrap_or_default();
        text.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
    }

    /// The recorded steps. The parcel is sent by a child task.
    async fn recorded(&self) -> Recorded {
        let stored = self.tasks.store().steps(self.id).await.unwrap();
        let mut all: Recorded = stored.steps.into_iter().map(|step| step.name).collect();
        let children = all.remove("ship");
        let tasks = self.tasks.list(&TaskListQuery::default()).await.unwrap();
        let shipped = |status| status == TaskStatus::Stopped;
        if children && tasks.iter().any(|task| task.class == "ship" && shipped(task.status)) {
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

    /// Kills the engine after every effect and after every record, and starts it again,
    /// until the order ends. Returns its result, and how often the engine was killed.
    async fn complete(&self, answer: Option<&str>) -> (String, u32) {
        let (mut done, mut kills) = (Recorded::new(), 0);
        for kill_after_effect in [true, false].into_iter().cycle() {
            let engine = self.start(&["run"]);
            let before = self.effects().len();
            let ended = self.work_goes_on(kill_after_effect, before, &done, answer).await;
            drop(engine);
            let all = self.effects();
            for again in &all[before..] {
                assert!(!done.contains(again), "{again} was recorded, and repeated: {all:?}");
            }
            done = self.recorded().await;
            if ended {
                break;
            }
            kills += 1;
        }
        let task = self.task().await;
        assert_eq!(task.row.status, TaskStatus::Stopped, "{task:?}");
        let result = task.executions.last().unwrap().result.as_ref().unwrap();
        (result.decode().unwrap(), kills)
    }

    /// Waits for the next effect or record. Returns whether the order has ended.
    async fn work_goes_on(
        &self,
        until_effect: bool,
        effects: usize,
        done: &Recorded,
        answer: Option<&str>,
    ) -> bool {
        let begun = Instant::now();
        let mut answer = answer;
        loop {
            assert!(begun.elapsed() < TIMEOUT, "{:?}", self.task().await);
            let recorded = self.recorded().await;
            if recorded.contains("approved")
                && let Some(answer) = answer.take()
            {
                let id = self.id.to_string();
                assert!(self.start(&[answer, &id]).0.wait().unwrap().success());
            }
            if !matches!(self.task().await.row.status, TaskStatus::Waiting | TaskStatus::Running) {
                return true;
            }
            let has_effect = self.effects().len() > effects;
            if if until_effect { has_effect } else { recorded.len() > done.len() } {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn command(url: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_order"));
    command.args(arguments).env("DATABASE_URL", url).current_dir(folder);
    command
}

/// Killed when it is dropped.
struct Engine(Child);

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The effects without those that were repeated because the engine was killed before
/// their record.
fn once(scene: &Scene) -> Vec<String> {
    let mut effects = scene.effects();
    effects.dedup();
    effects
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_order_survives_kills() {
    let scene = Scene::new(&["place", "lamp"]).await;
    let (result, kills) = scene.complete(Some("approve")).await;
    assert_eq!(result, "delivered");
    assert_eq!(once(&scene), ["charge", "ship", "notify"]);
    assert_eq!(scene.stock("lamp").await, 9);
    assert!(kills >= 5, "{kills}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_order_is_undone() {
    let scene = Scene::new(&["place", "lamp"]).await;
    let (result, kills) = scene.complete(Some("refuse")).await;
    assert_eq!(result, "cancelled: refused by ada");
    assert_eq!(once(&scene), ["charge", "refund", "notify"]);
    assert_eq!(scene.stock("lamp").await, 10);
    assert!(kills >= 4, "{kills}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_order_is_undone() {
    let scene = Scene::new(&["place", "lamp", "1"]).await;
    let (result, _) = scene.complete(None).await;
    assert_eq!(result, "cancelled: not approved in time");
    assert_eq!(once(&scene), ["charge", "refund", "notify"]);
    assert_eq!(scene.stock("lamp").await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn unshippable_order_is_undone() {
    let scene = Scene::new(&["place", "piano"]).await;
    let (result, _) = scene.complete(Some("approve")).await;
    assert_eq!(result, "cancelled: not shipped: too heavy for the courier");
    assert_eq!(once(&scene), ["charge", "refund", "notify"]);
    assert_eq!(scene.stock("piano").await, 10);
}
