//! The monitoring pages, on real stores.

mod watch {
    pub(crate) mod site;
}

use std::collections::BTreeMap;
use std::time::Duration;

use task_engine_core::json::Json;
use task_engine_core::queue::QueuePause;
use task_engine_core::schedule::Schedule;
use task_engine_core::task::NewTask;
use task_engine_store::audit::AuditFilter;
use task_engine_store::contract::Store;
use task_engine_store::rollup::{AttemptKind, ClassMinute, RollupCounts};
use task_engine_store::schedules::Schedules;
use task_engine_store::token::{NewToken, TokenSecret};
use task_engine_web::{Dashboard, Role};

use watch::site::{Site, claim_all, register};

/// A name that would be more than text, if it were not escaped.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&";
const ESCAPED: &str = "&lt;img src=x onerror=alert(1)&gt;&quot;";

const PAGES: [&str; 8] = [
    "/",
    "/?span=day",
    "/queues",
    "/schedules",
    "/schedules/new",
    "/instances",
    "/health",
    "/audit",
];

#[tokio::test]
async fn empty_pages_show_a_command() {
    let site = Site::new(Role::Admin).await;
    for (path, says) in [
        ("/", "task-engine create WaitingTask"),
        ("/queues", "task-engine start --queue default"),
        ("/schedules", "task-engine schedules add"),
        ("/instances", "task-engine start"),
        ("/health", "no engine is alive"),
        ("/health?depth=standard", "task-engine doctor --deep"),
        ("/audit", "No operator has changed anything yet"),
        ("/tokens", "task-engine tokens create NAME --role viewer"),
        ("/schedules/new", "The next slots are shown here"),
    ] {
        let page = site.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        page.must_say(says);
        assert!(!page.text.contains("style=\""), "the policy forbids it: {path}");
    }
    for path in ["/?span=week", "/health?depth=deep", "/audit?before=x"] {
        assert_eq!(site.get(path).await.status, 400, "{path}");
    }
    for path in ["/schedules/none", "/schedules/edit?name=none", "/schedules?show=none"] {
        assert_eq!(site.get(path).await.status, 404, "{path}");
    }
}

/// Running, due and scheduled tasks, a paused queue, a schedule and a rollup, all
/// with hostile names.
async fn fill(store: &dyn Store) {
    let task =
        |queue: &str| NewTask::new(HOSTILE, Json::empty_object()).unwrap().queue(queue).unwrap();
    let later = task("mail").after(Duration::from_secs(3600));
    store.create(&[task(HOSTILE), task(HOSTILE), task("mail"), later]).await.unwrap();
    let engine = register(store, HOSTILE, &[HOSTILE], HOSTILE).await;
    assert_eq!(claim_all(store, engine, &[HOSTILE], HOSTILE).await, 2);
    store.pause_queue(&QueuePause::new("mail", Some(HOSTILE.to_owned())).unwrap()).await.unwrap();
    let schedule = Schedule::new(HOSTILE, "every 1h").new_task(task("mail"));
    Schedules::of(store).add(&schedule).await.unwrap();
    Schedules::of(store).pause(HOSTILE, Some(HOSTILE)).await.unwrap();
    let mut counts = RollupCounts::default();
    for (kind, ms) in [(AttemptKind::Ok, 20), (AttemptKind::Ok, 30), (AttemptKind::Failed, 2000)] {
        counts.add(kind, Some((Duration::from_millis(ms), Duration::from_millis(5))));
    }
    let minute = store
        .activity(task_engine_store::activity::ActivityQuery { per_lane: 1, soon: Duration::ZERO });
    let minute = minute.await.unwrap().now.as_second() / 60;
    let row = ClassMinute { minute, generation: 0, class: HOSTILE.to_owned(), counts };
    store.write_rollups(engine, &[row]).await.unwrap();
}

async fn hostile_names_are_text(site: &Site) {
    fill(&*site.store).await;
    let revoked =
        NewToken::new(HOSTILE, Role::Viewer, TokenSecret::generate().unwrap().hash(), None);
    site.store.add_token(&revoked.unwrap()).await.unwrap();
    for (path, says) in [
        ("/", "Throughput"),
        ("/?span=day", "Busiest classes"),
        ("/queues", "paused"),
        ("/schedules", "every 1 h"),
        ("/instances", "process 4242 on"),
        ("/health", "paused queues"),
        ("/health?depth=standard", "unserved schedules"),
        ("/tokens", "valid"),
    ] {
        let page = site.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        page.must_say(says);
        page.must_say(ESCAPED);
        assert!(!page.text.contains("<img src=x"), "{path}");
        assert!(page.text.len() < 100_000, "{path} has {} bytes", page.text.len());
    }
    let page = site.get(&format!("/schedules/{}", site.encoded(HOSTILE))).await;
    page.must_say(ESCAPED).must_say("The schedule is paused").must_say("Nothing yet");
    assert!(!page.text.contains("<img src=x"));
    let page = site.get(&format!("/schedules/edit?name={}", site.encoded(HOSTILE))).await;
    page.must_say(ESCAPED).must_say("every 1h");
    assert!(!page.text.contains("<img src=x"));
}

#[tokio::test]
async fn hostile_names_are_text_on_sqlite() {
    hostile_names_are_text(&Site::new(Role::Admin).await).await;
}

#[tokio::test]
async fn hostile_names_are_text_on_postgres() {
    hostile_names_are_text(&Site::on_postgres(Role::Admin).await).await;
}

#[tokio::test]
async fn overview_has_counts_and_charts() {
    let site = Site::new(Role::Viewer).await;
    fill(&*site.store).await;
    let page = site.get("/").await;
    page.must_say("<b>1</b><span>Backlog</span>")
        .must_say("<b>1</b><span>Scheduled</span>")
        .must_say("<b>2</b><span>Running</span>")
        .must_say("engine alive, 2 of 3 workers busy")
        .must_say("Needs attention")
        .must_say("class=\"chart plot\"")
        .must_say("2 succeeded, 1 failed, 0 other");
    // The same as a table.
    page.must_say("The charts in numbers");
    // Viewers have no actions.
    assert!(!page.text.contains("/operations/resume-queue"));
}

#[tokio::test]
async fn queue_is_paused_and_resumed() {
    let site = Site::new(Role::Operator).await;
    site.store.create(&[NewTask::new("a", Json::empty_object()).unwrap()]).await.unwrap();
    site.get("/queues").await.must_say("none").must_say("Pause");
    let form = [("name", "default"), ("reason", "deploy"), ("back", "/queues")];
    let done = site.post("/operations/pause-queue", &form).await;
    assert_eq!(done.status, 303);
    assert!(done.to.starts_with("/queues?done="), "{}", done.to);
    site.get(&done.to)
        .await
        .must_say("Queue default was paused.")
        .must_say("deploy")
        .must_say("Resume");
    let paused = site.store.paused_queues().await.unwrap();
    assert_eq!(paused[0].reason.as_deref(), Some("deploy"));
    site.post("/operations/resume-queue", &[("name", "default")]).await;
    assert!(site.store.paused_queues().await.unwrap().is_empty());
    assert_eq!(site.audit().await, ["queues.resume default", "queues.pause default"]);
}

#[tokio::test]
async fn schedule_is_managed_by_pages() {
    let site = Site::new(Role::Admin).await;
    let mut form = vec![
        ("name", "nightly"),
        ("rule", "30 2 * * *"),
        ("time_zone", "America/New_York"),
        ("class", "tidy"),
        ("parameters", "{\r\n  \"n\": 1.50\r\n}"),
        ("queue", "mail"),
        ("priority", "7"),
        ("missed", "all"),
        ("missed_max", "5"),
        ("overlap", "skip"),
        ("jitter", "30s"),
        ("reason", "because"),
    ];
    // A preview changes nothing.
    form.push(("do", "preview"));
    let preview = site.post("/schedules/new", &form).await;
    assert_eq!(preview.status, 200);
    preview.must_say("every day at 02:30").must_say("value=\"nightly\"");
    assert!(site.store.schedule("nightly").await.unwrap().0.is_none());
    form.pop();
    let made = site.post("/schedules/new", &form).await;
    assert!(made.to.starts_with("/schedules/nightly?done="), "{}", made.to);
    site.get(&made.to).await.must_say("Schedule nightly was added.").must_say("every day at 02:30");
    let stored = site.store.schedule("nightly").await.unwrap().0.unwrap().definition().unwrap();
    assert_eq!((stored.queue.as_str(), stored.priority), ("mail", 7));
    assert_eq!(stored.missed.to_string(), "all:5");
    assert!(stored.parameters.as_str().contains("1.50"));

    // A second creation is refused.
    form[1].1 = "0 3 * * *";
    let twice = site.post("/schedules/new", &form).await;
    assert_eq!(twice.status, 409);
    twice.must_say("There is a schedule &quot;nightly&quot; already").must_say("0 3 * * *");
    let changed = site.post("/schedules/edit?name=nightly", &form).await;
    assert_eq!(changed.status, 303, "{}", changed.text);
    let stored = site.store.schedule("nightly").await.unwrap().0.unwrap().definition().unwrap();
    assert_eq!(stored.rule, "0 3 * * *");

    let here = [("name", "nightly"), ("back", "/schedules/nightly"), ("reason", "storm")];
    site.post("/operations/pause-schedule", &here).await;
    site.get("/schedules").await.must_say("paused").must_say("storm");
    site.post("/operations/resume-schedule", &here).await;
    let run = site.post("/operations/run-schedule", &here).await;
    site.get(&run.to).await.must_say("1 task was created");
    assert!(site.store.task(task_engine_core::task::TaskId(1)).await.unwrap().is_some());
    site.post("/operations/remove-schedule", &here).await;
    assert!(site.store.schedule("nightly").await.unwrap().0.is_none());
    assert_eq!(
        site.audit().await,
        [
            "schedules.remove nightly",
            "schedules.run nightly",
            "schedules.resume nightly",
            "schedules.pause nightly",
            "schedules.set nightly",
            "schedules.add nightly",
        ]
    );
}

#[tokio::test]
async fn form_errors_keep_the_input() {
    let site = Site::new(Role::Admin).await;
    let form = [
        ("name", HOSTILE),
        ("rule", "0 25 * * *"),
        ("time_zone", "Mars/Base"),
        ("class", ""),
        ("parameters", "[1]</textarea><img src=x>"),
        ("queue", "mail"),
        ("priority", "high"),
        ("missed", "last"),
        ("overlap", "allow"),
        ("jitter", "soon"),
    ];
    let page = site.post("/schedules/new", &form).await;
    assert_eq!(page.status, 400);
    page.must_say(ESCAPED)
        .must_say("value=\"0 25 * * *\"")
        .must_say("unknown time zone &quot;Mars/Base&quot;")
        .must_say("a priority is a whole number")
        .must_say("write it like 5s")
        .must_say("a class needs a name")
        .must_say("aria-invalid=\"true\"");
    assert!(!page.text.contains("<img src=x"));
    assert!(site.audit().await.is_empty());
    assert!(site.store.schedules(None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn preview_shows_clock_changes_and_errors() {
    let site = Site::new(Role::Viewer).await;
    // Seven days a year, one of which has no such time: it is among any ten.
    let page = site.get("/schedules/preview?rule=30+2+8-14+3+*&time_zone=America/New_York").await;
    assert_eq!(page.status, 200);
    page.must_say("America/New_York").must_say("02:30 does not exist on");
    assert!(!page.text.contains("<html"), "a piece of a page, not a whole one");
    site.get("/schedules/preview?rule=61+*+*+*+*&time_zone=UTC")
        .await
        .must_say("class=\"field-error\"");
    site.get("/schedules/preview?rule=0+0+31+2+*&time_zone=UTC").await.must_say("never fires");
    site.get("/schedules/preview?rule=@daily&time_zone=Mars").await.must_say("unknown time zone");
    site.get("/schedules/preview").await.must_say("are shown here");
    let times = site.get("/schedules/preview?rule=every+15m").await;
    times.must_say("every 15 min");
    assert_eq!(times.text.matches("<tr>").count(), 11);
}

#[tokio::test]
async fn odd_schedule_names_have_pages() {
    let site = Site::new(Role::Admin).await;
    for name in [".", "..", "new", "edit", "preview", "a/b", "a?b#c", "%2e", " x "] {
        let task = NewTask::new("tidy", Json::empty_object()).unwrap();
        let schedule = Schedule::new(name, "@daily").new_task(task);
        Schedules::of(&*site.store).add(&schedule).await.unwrap();
    }
    let list = site.get("/schedules").await;
    for link in list.links("/schedules/").into_iter().chain(list.links("/schedules?show=")) {
        if link != "/schedules/new" {
            site.get(&link).await.must_say("Next slots");
        }
    }
    assert_eq!(list.links("/schedules?show=").len(), 5);
    assert_eq!(list.links("/schedules/").len(), 5);
    site.post("/operations/remove-schedule", &[("name", " x ")]).await;
    assert!(site.store.schedule(" x ").await.unwrap().0.is_none());
}

#[tokio::test]
async fn tasks_of_dead_engine_are_recovered() {
    let site = Site::new(Role::Operator).await;
    let task = NewTask::new("tidy", Json::empty_object()).unwrap();
    site.store.create(&[task.clone(), task]).await.unwrap();
    let engine = register(&*site.store, "worker-1", &["default"], "tidy").await;
    assert_eq!(claim_all(&*site.store, engine, &["default"], "tidy").await, 2);
    site.get("/instances").await.must_say("alive").must_say("2 of 3").must_say("tidy");
    assert!(site.store.declare_lost(engine, true).await.unwrap());
    let site = site.uncached();
    site.get("/").await.must_say("worker-1 is dead and holds 2 tasks").must_say("Recover");
    site.get("/instances").await.must_say("lost").must_say("/operations/recover");
    let form = [("name", "worker-1"), ("back", "/instances")];
    let done = site.post("/operations/recover", &form).await;
    let page = site.get(&done.to).await;
    page.must_say("2 tasks were recovered and wait again");
    assert!(!page.text.contains("is dead and holds"), "it holds nothing any more");
    assert_eq!(site.audit().await, ["instances.recover worker-1"]);
}

#[tokio::test]
async fn audit_is_paged() {
    let site = Site::new(Role::Admin).await;
    for n in 0..60 {
        let queue = format!("q{n}");
        site.post("/operations/pause-queue", &[("name", &queue), ("reason", HOSTILE)]).await;
    }
    let page = site.get("/audit").await;
    page.must_say("queues.pause").must_say("q59").must_say(ESCAPED).must_say("anonymous");
    assert!(!page.text.contains("<td>q0<"), "two entries an action: fifty are on a page");
    let older = page.links("/audit?before=");
    assert_eq!(older.len(), 1);
    let next = site.get(&older[0]).await;
    next.must_say("q0").must_say("Newest");
    assert!(!next.text.contains(">q59<"));
}

#[tokio::test]
async fn revoked_token_is_refused() {
    let site = Site::new(Role::Admin).await;
    let secret = TokenSecret::generate().unwrap();
    let token = NewToken::new("ci", Role::Viewer, secret.hash(), None).unwrap();
    site.store.add_token(&token).await.unwrap();
    site.get("/tokens").await.must_say("ci").must_say("valid");
    assert_eq!(site.get_with_token("/queues", secret.text()).await.status, 200);
    let done = site.post("/operations/revoke-token", &[("name", "ci"), ("back", "/tokens")]).await;
    let page = site.get(&done.to).await;
    page.must_say("revoked");
    assert!(!page.text.contains(secret.text()));
    assert_ne!(site.get_with_token("/queues", secret.text()).await.status, 200);
}

#[tokio::test]
async fn changes_need_their_role() {
    let changes = [
        ("/operations/pause-queue", Role::Operator),
        ("/operations/resume-queue", Role::Operator),
        ("/operations/recover", Role::Operator),
        ("/operations/pause-schedule", Role::Operator),
        ("/operations/resume-schedule", Role::Operator),
        ("/operations/run-schedule", Role::Operator),
        ("/operations/remove-schedule", Role::Admin),
        ("/operations/revoke-token", Role::Admin),
        ("/schedules/new", Role::Admin),
        ("/schedules/edit", Role::Admin),
    ];
    let admins = ["/audit", "/tokens", "/schedules/new", "/schedules/edit?name=x"];
    for role in [Role::Viewer, Role::Operator] {
        let site = Site::new(role).await;
        for path in admins {
            assert_eq!(site.get(path).await.status, 403, "{role} {path}");
        }
        for (path, needs) in changes {
            let status = site.post(path, &[("queue", "x"), ("name", "x")]).await.status;
            assert_eq!(status == 403, role < needs, "{role} {path}: {status}");
        }
        for path in PAGES.iter().filter(|path| !admins.contains(path)) {
            assert_eq!(site.get(path).await.status, 200, "{role} {path}");
        }
    }
    let routes: BTreeMap<_, _> = Dashboard::routes()
        .into_iter()
        .filter(|route| route.method == "POST")
        .map(|route| (route.path, route.needs))
        .collect();
    for (path, needs) in changes {
        assert_eq!(routes[path], Some(needs), "{path}");
    }
}

#[tokio::test]
async fn audit_page_is_filtered() {
    let site = Site::new(Role::Admin).await;
    for (path, fields) in [
        ("/operations/recover", [("name", "nobody")]),
        ("/operations/revoke-token", [("name", "nobody")]),
    ] {
        assert_eq!(site.post(path, &fields).await.status, 404);
    }
    assert_eq!(site.store.audit_page(&AuditFilter::newest(10)).await.unwrap(), []);
    for queue in ["mail", "video"] {
        site.post("/operations/pause-queue", &[("name", queue)]).await;
    }
    site.post("/operations/resume-queue", &[("name", "mail")]).await;
    let rows = async |query: &str| {
        site.get(&format!("/audit{query}")).await.text.matches("<tr data-key").count()
    };
    assert_eq!(rows("").await, 3);
    assert_eq!(rows("?action=queues.pause").await, 2);
    assert_eq!(rows("?action=queues&actor=ANON&since=1h&until=").await, 3);
    assert_eq!(rows("?actor=somebody").await, 0);
    assert_eq!(rows("?until=1h").await, 0);
    assert_eq!(rows("?task=17").await, 0);
    assert_eq!(site.get("/audit?since=soon").await.status, 400);
    assert_eq!(site.get("/audit?task=x").await.status, 400);
    site.get("/audit?actor=%3Cb%3E").await.must_say("No entries match");
}
