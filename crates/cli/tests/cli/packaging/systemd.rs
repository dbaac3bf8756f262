//! The commands of the pages about systemd and the Debian package, with a real systemd.

use std::env;
use std::fs;
use std::process::Stdio;

use super::super::docs::{blocks, file_name};
use super::super::support::sandbox;
use super::root;
use task_engine_test_harness::{command, not_run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_task-engine");
/// The command of the page that needs a PostgreSQL.
const ON_POSTGRES: &str =
    "TASK_ENGINE_DATABASE_URL=postgres://tasks_owner:…@db.example.com/tasks task-engine migrate";

/// Starts a container on a copy of this machine's files, which is in memory. Its systemd
/// runs `page.sh`, writes `page.log` and `page.code`, and ends.
const CONTAINER: &str = r#"set -e
mkdir disk && mount -t tmpfs tmpfs disk && mkdir disk/changes disk/work disk/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$PWD/disk/changes,workdir=$PWD/disk/work" disk/root
mkdir disk/root/page && cp page.sh disk/root/page/
cat >disk/root/etc/systemd/system/page.service <<'END'
[Service]
Type=oneshot
ExecStart=/bin/bash -c 'bash -ex /page/page.sh >/page/page.log 2>&1; echo $? >/page/page.code'
ExecStopPost=/bin/systemctl poweroff --no-block
END
SYSTEMD_NSPAWN_TMPFS_TMP=0 systemd-nspawn --quiet --directory disk/root --machine "page-$$" \
  --private-network --register=no --keep-unit --link-journal=no --boot systemd.unit=page.service
cp disk/root/page/page.log disk/root/page/page.code .
"#;

fn can_start_containers(test: &str) -> bool {
    let probe = "systemd-nspawn --version && mkdir disk && mount -t tmpfs tmpfs disk";
    let mut probing = command("unshare");
    let sandbox = sandbox();
    probing.args(["--mount", "sh", "-c", probe]).current_dir(sandbox.path("."));
    let can = probing.output().is_ok_and(|done| done.status.success());
    if !can {
        not_run(test, "needs root and the package systemd-container");
    }
    can
}

/// Runs a script in a container; returns its output.
fn run_in_container(script: &str) -> String {
    let sandbox = sandbox();
    fs::write(sandbox.path("page.sh"), script).unwrap();
    // A page takes longer than a usual command.
    let mut container = command("timeout");
    container.args(["--kill-after=10", "300", "unshare", "--mount", "bash", "-c", CONTAINER]);
    let done = container.current_dir(sandbox.path(".")).stdin(Stdio::null()).output();
    let log = fs::read_to_string(sandbox.path("page.log"));
    let log = log.unwrap_or_else(|e| panic!("the container did not run: {e}: {done:?}"));
    let code = fs::read_to_string(sandbox.path("page.code")).unwrap();
    assert_eq!(code.trim(), "0", "{log}");
    log
}

/// The commands of a page, and its files, in their order.
fn script_of(page: &str) -> String {
    let text = fs::read_to_string(root().join("docs").join(page)).unwrap();
    let mut script = format!("cd {}\n", root().canonicalize().unwrap().display());
    for (language, code) in blocks(&text) {
        if language == "bash" {
            script += &format!("{code}\n");
        } else if let Some(path) = file_name(&code).filter(|name| name.starts_with('/')) {
            script += &format!("mkdir -p $(dirname {path}) && cat >{path} <<'END'\n{code}\nEND\n");
        }
    }
    script
}

#[test]
fn systemd_page_works() {
    if !can_start_containers("systemd_page_works") {
        return;
    }
    let build = "cargo build --locked --profile dist -p task-engine-cli";
    let page = script_of("systemd.md");
    assert!(page.contains(build) && page.contains(ON_POSTGRES), "{page}");
    // The container has a network of its own, without that server.
    let page = page.replace(ON_POSTGRES, "");
    let page = page.replace(build, &format!("install -D {PROGRAM} target/dist/task-engine"));

    // systemd starts an engine again that was killed.
    let killed = "\
        main_pid() { systemctl show --property MainPID --value task-engine; }
        first=$(main_pid)
        systemctl kill --kill-whom main --signal KILL task-engine
        timeout 30 sh -c \"journalctl -f -u task-engine | grep -qm 1 'Scheduled restart'\"
        runuser -u task-engine -- task-engine create free_space --database sqlite:/var/lib/task-engine/tasks.db
        runuser -u task-engine -- task-engine wait 2 --timeout 30s --database sqlite:/var/lib/task-engine/tasks.db
        [ $(main_pid) != $first ]
        systemctl stop task-engine
        [ $(systemctl show --property Result --value task-engine) = success ]";
    let log = run_in_container(&format!("{page}\n{killed}\n"));
    assert!(log.contains("\"status\":\"stopped\""), "{log}");
}

#[test]
fn debian_page_works() {
    if !can_start_containers("debian_page_works") {
        return;
    }
    let page = script_of("debian.md");
    let build = "packaging/build-deb\n";
    assert!(page.contains(build), "{page}");
    // It is built where cargo is.
    let of_cargo = ["HOME", "PATH"].map(|name| format!("{name}='{}'", env::var(name).unwrap()));
    let quick = format!("{} packaging/build-deb --quick --binary {PROGRAM}\n", of_cargo.join(" "));
    let upgrade = "\
        apt-get install -y --reinstall ./target/deb/task-engine_*.deb
        systemctl is-active task-engine
        apt-get remove -y task-engine
        ! systemctl is-active task-engine
        apt-get purge -y task-engine
        [ ! -e /etc/task-engine/environment ] && [ -e /var/lib/task-engine/tasks.db ]";
    run_in_container(&format!("{}\n{upgrade}\n", page.replace(build, &quick)));
}
