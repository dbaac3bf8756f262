//! The clients for other languages pass their own tests, with the tools of their languages,
//! this program and a real server.

use std::path::Path;
use std::process::Command;

use task_engine_test_harness::{TestServer, not_run};

/// `./test` sets it: the folder that packages are installed into. Without it, these tests
/// would install packages during a plain `cargo test`.
const FOLDER: &str = "TASK_ENGINE_TEST_CLIENTS";

async fn client_passes(language: &str) {
    let Some(packages) = std::env::var_os(FOLDER) else {
        not_run(&format!("the client for {language}"), "only ./test installs its packages");
        return;
    };
    let program = env!("CARGO_BIN_EXE_task-engine");
    let url = TestServer::shared().create_database().await;
    let migrated = Command::new(program).args(["migrate", "--database", &url]).output().unwrap();
    assert!(migrated.status.success(), "{migrated:?}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(language);
    let test = Command::new(folder.canonicalize().unwrap().join("test"))
        .env("TASK_ENGINE_TEST_BINARY", program)
        .env("TASK_ENGINE_TEST_DATABASE_URL", &url)
        .env("TASK_ENGINE_TEST_FOLDER", Path::new(&packages).join(language))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        test.status.success(),
        "clients/{language}/test failed:\n{}\n{}",
        text(&test.stdout),
        text(&test.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_passes() {
    client_passes("python").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_client_passes() {
    let node = Command::new("node").arg("--version").output();
    let version = node.map(|node| String::from_utf8_lossy(&node.stdout).trim().to_owned());
    let version = version.unwrap_or_default();
    let major = version.trim_start_matches('v').split('.').next().and_then(|it| it.parse().ok());
    if major.is_none_or(|major: u32| major < 20) {
        not_run("the client for typescript", &format!("it needs Node 20, and this is {version:?}"));
        return;
    }
    client_passes("typescript").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ruby_client_passes() {
    client_passes("ruby").await;
}
