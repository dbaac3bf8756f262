//! The shop against a real PostgreSQL, as customers and operators see it.

use task_engine::postgres::tokio_postgres::{self, NoTls};
use task_engine_test_harness::{RunningProgram, TestServer, command, wait_until};

/// A running shop. Another one may start on its database.
struct Shop {
    program: RunningProgram,
    address: String,
    _folder: tempfile::TempDir,
}

impl Shop {
    fn start(database: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut shop = command(env!("CARGO_BIN_EXE_task-engine-shop"));
        shop.env("DATABASE_URL", database).env("ADDRESS", "127.0.0.1:0");
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        let program = RunningProgram::start(shop, out, err);
        let mut address = String::new();
        wait_until("the shop listens", || {
            let out = program.out();
            let line = out.lines().find_map(|line| line.strip_prefix("listening on "));
            line.unwrap_or_default().clone_into(&mut address);
            !address.is_empty() && out.ends_with('\n')
        });
        Self { program, address, _folder: folder }
    }

    fn get(&self, path: &str) -> String {
        let answer = ureq::get(format!("{}{path}", self.address)).call();
        answer.unwrap().body_mut().read_to_string().unwrap()
    }

    /// The body of the answer.
    fn post(&self, path: &str, body: &str) -> Result<String, ureq::Error> {
        let request = ureq::post(format!("{}{path}", self.address));
        let mut answer = request.header("Content-Type", "application/json").send(body)?;
        answer.body_mut().read_to_string()
    }

    fn place_order(&self) -> i64 {
        let placed = self.post("/orders", r#"{"customer": "ada@example.org", "cents": 1200}"#);
        number(&placed.unwrap())
    }

    fn wait_until_notified(&self, order: i64) {
        wait_until(format!("order {order} is notified"), || {
            self.get(&format!("/orders/{order}")).contains("notified")
        });
    }

    /// Sends SIGTERM, and checks that requests and tasks end.
    fn stop(self) {
        self.program.signal("TERM");
        let end = self.program.end();
        assert_eq!(end.code, Some(0), "{}", end.err);
        assert!(end.out.ends_with("stopped, 0 tasks were released\n"), "{}", end.out);
    }
}

/// The first number of a JSON text.
fn number(text: &str) -> i64 {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The first column of the first row.
async fn count(database: &str, query: &str) -> i64 {
    let (client, connection) = tokio_postgres::connect(database, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.query_one(query, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn shop_serves_orders_until_sigterm() {
    let shop = Shop::start(&TestServer::shared().create_database().await);
    let orders = [shop.place_order(), shop.place_order()];
    for order in orders {
        shop.wait_until_notified(order);
    }
    let page = shop.get("/tasks");
    assert!(page.contains("<html"), "{page}");
    assert!(shop.get("/tasks/tasks").contains("notify"));
    assert!(shop.get("/tasks/schedules").contains("nightly report"));
    assert!(shop.get("/tasks/metrics").contains("task_engine_executions"));
    shop.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn import_is_unique_and_cancellable() {
    let shop = Shop::start(&TestServer::shared().create_database().await);
    let import = r#"{"products": 100000}"#;
    let path = format!("/imports/{}", number(&shop.post("/imports", import).unwrap()));
    let second = shop.post("/imports", import);
    assert!(matches!(second, Err(ureq::Error::StatusCode(409))), "{second:?}");
    let has_progress = || !shop.get(&path).contains(r#""percent":null"#);
    wait_until("the import reports progress", has_progress);
    ureq::delete(format!("{}{path}", shop.address)).call().unwrap();
    wait_until("the import ends", || shop.get(&path).contains("cancelled"));
    shop.stop();
}

/// The second shop finishes what the first one began, and ships each order once.
#[tokio::test(flavor = "multi_thread")]
async fn restart_after_kill_finishes_orders() {
    let database = TestServer::shared().create_database().await;
    let killed = Shop::start(&database);
    let orders: Vec<i64> = (0..20).map(|_| killed.place_order()).collect();
    killed.wait_until_notified(orders[0]);
    killed.program.signal("KILL");
    let _ = killed.program.end();
    let open = "SELECT count(*) FROM orders WHERE state <> 'notified'";
    assert!(count(&database, open).await > 0, "it was killed too late");

    let restarted = Shop::start(&database);
    for order in orders {
        restarted.wait_until_notified(order);
    }
    assert_eq!(count(&database, "SELECT count(*) FROM shipments").await, 20);
    restarted.stop();
}
