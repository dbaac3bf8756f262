use super::*;

/// Set in the process that holds a server until it is killed.
const HOLDER: &str = "TASK_ENGINE_TEST_HOLDS_A_SERVER";

async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_are_empty_and_separate() {
    let server = TestServer::shared();
    let (one, other) = (server.create_database().await, server.create_database().await);
    assert_ne!(one, other);
    client(&one).await.batch_execute("CREATE TABLE t ()").await.expect("created");
    client(&other).await.batch_execute("CREATE TABLE t ()").await.expect("empty");
    let row = client(&one).await.query_one("SHOW fsync", &[]).await.expect("a setting");
    assert_eq!(row.get::<_, &str>(0), "on", "durable like in production");
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_data_survives_crash() {
    let server = TestServer::start();
    let url = server.create_database().await;
    let before = client(&url).await;
    before.batch_execute("CREATE TABLE t ()").await.expect("created");
    for _ in 0..2 {
        server.stop_immediate();
        assert!(tokio_postgres::connect(&url, NoTls).await.is_err(), "it is down");
        server.start_again();
        client(&url).await.batch_execute("SELECT FROM t").await.expect("still there");
    }
    assert!(before.batch_execute("SELECT").await.is_err(), "connections broke");
    let directory = server.directory.clone();
    assert!(directory.exists());
    drop(server);
    assert!(!directory.exists(), "nothing is left");
}

/// Runs itself in another process, and kills that one.
#[test]
fn killed_process_takes_server_along() {
    if std::env::var_os(HOLDER).is_some() {
        let server = TestServer::start();
        println!("\nholds {} {}", server.port, server.directory.display());
        // Until it is killed, or the test that started it has ended.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let name = "server::tests::killed_process_takes_server_along";
    let mut holder = Command::new(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--nocapture"])
        .env(HOLDER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let output = BufReader::new(holder.stdout.take().expect("a piped stdout"));
    let line = output.lines().map_while(Result::ok).find(|line| line.starts_with("holds "));
    let line = line.expect("the other process holds a server");
    let mut words = line.splitn(3, ' ').skip(1);
    let port: u16 = words.next().and_then(|port| port.parse().ok()).expect("a port");
    let directory = PathBuf::from(words.next().expect("a directory"));
    let answers = || accepts_connections(port);
    assert!(answers() && directory.exists());

    holder.kill().expect("it can be killed");
    holder.wait().expect("it is dead");
    wait_until(format_args!("port {port} and {directory:?} are gone"), || {
        !answers() && !directory.exists()
    });
}
