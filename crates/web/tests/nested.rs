//! The dashboard nested in an application with its own users.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, header};
use task_engine::sqlite::SqliteStore;
use task_engine::{Json, NewTask};
use task_engine_web::{Access, Actor, Dashboard, Role};
use tower::ServiceExt as _;

async fn site(access: Access) -> Router {
    Router::new().nest_service("/admin/tasks", dashboard(access).await)
}

async fn dashboard(access: Access) -> Router {
    let store = SqliteStore::open_in_memory().unwrap();
    store.migrate().await.unwrap();
    let task = NewTask::new("a", Json::empty_object()).unwrap();
    store.create(&[task]).await.unwrap();
    Dashboard::new(store, access).base_path("/admin/tasks").router()
}

async fn ask(site: &Router, request: Request<Body>) -> Response<Body> {
    site.clone().oneshot(request).await.unwrap()
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).header(header::HOST, "app.example.com").body(Body::empty()).unwrap()
}

fn post(path: &str, body: &str) -> Request<Body> {
    let request = Request::post(path).header(header::HOST, "app.example.com");
    let request = request.header("sec-fetch-site", "same-origin");
    let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    request.body(Body::from(body.to_owned())).unwrap()
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(to_bytes(response.into_body(), 1 << 24).await.unwrap().to_vec()).unwrap()
}

fn header_of<'a>(response: &'a Response<Body>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn links_are_below_the_path() {
    let admin = |_: &_| Some(Actor::new("ann", Role::Admin));
    let site = site(Access::by(admin)).await;
    for path in ["", "/", "/tasks", "/tasks/1", "/tasks/1/edit", "/errors", "/queues", "/schedules"]
        .into_iter()
        .chain([
            "/instances",
            "/audit",
            "/tokens",
            "/health",
            "/tasks/preview?operation=cancel&ids=1",
        ])
    {
        let response = ask(&site, get(&format!("/admin/tasks{path}"))).await;
        assert_eq!(response.status(), 200, "{path}");
        let page = text(response).await;
        for part in ["href=\"/", "src=\"/", "action=\"/", "data-events=\"/", "data-suggestions=\"/"]
        {
            for (at, _) in page.match_indices(part) {
                let to = &page[at + part.len() - 1..];
                assert!(to.starts_with("/admin/tasks"), "{path}: {}", &to[..40]);
            }
        }
        for (at, _) in page.match_indices("name=\"back\" value=\"") {
            let to = &page[at + 19..];
            assert!(!to.starts_with("/admin"), "{path}: it would come twice: {}", &to[..40]);
        }
    }
    let response = ask(&site, post("/admin/tasks/operations/cancel", "ids=1&back=/tasks/1")).await;
    assert_eq!(response.status(), 303);
    assert!(
        header_of(&response, "location").starts_with("/admin/tasks/tasks/1?done="),
        "{response:?}"
    );
    let response = ask(&site, post("/admin/tasks/theme", "theme=dark&to=//evil.test")).await;
    assert_eq!(header_of(&response, "location"), "/admin/tasks");
    assert!(header_of(&response, "set-cookie").contains("Path=/admin/tasks;"), "{response:?}");
}

/// `nest` does not answer at `/admin/tasks/`, so nothing leads there.
#[tokio::test]
async fn links_work_with_nest_and_service() {
    let admin = |_: &_| Some(Actor::new("ann", Role::Admin));
    let tasks = dashboard(Access::by(admin)).await;
    for site in [
        Router::new().nest("/admin/tasks", tasks.clone()),
        Router::new().nest_service("/admin/tasks", tasks),
    ] {
        let page = text(ask(&site, get("/admin/tasks")).await).await;
        let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let links: Vec<_> = links.filter(|to| to.starts_with('/')).collect();
        assert!(links.contains(&"/admin/tasks"), "{links:?}");
        for to in links {
            assert_eq!(ask(&site, get(&to.replace("&amp;", "&"))).await.status(), 200, "{to}");
        }
    }
}

#[tokio::test]
async fn unknown_users_are_refused() {
    let site = site(Access::by(|_: &_| None)).await;
    for path in ["", "/tasks", "/api/v1/tasks", "/metrics", "/events"] {
        let response = ask(&site, get(&format!("/admin/tasks{path}"))).await;
        assert_eq!(response.status(), 401, "{path}");
    }
    let response = ask(&site, post("/admin/tasks/operations/cancel", "ids=1")).await;
    assert_eq!(response.status(), 401);
    // Password and tokens of the dashboard do not apply.
    let response = ask(&site, post("/admin/tasks/login", "secret=")).await;
    assert_eq!(header_of(&response, "set-cookie"), "");
}

#[tokio::test]
async fn login_returns_below_the_path() {
    let access = Access::closed().password("correct horse").unwrap();
    let site = site(access.public_url("https://app.example.com").unwrap()).await;
    let response = ask(&site, get("/admin/tasks/tasks?filter=id%3D1")).await;
    let login = header_of(&response, "location").to_owned();
    assert_eq!(login, "/admin/tasks/login?to=%2Ftasks%3Ffilter%3Did%253D1");
    assert!(text(ask(&site, get(&login)).await).await.contains("value=\"/tasks?filter=id%3D1\""));
    let response = ask(&site, post("/admin/tasks/login", "secret=correct+horse&to=/tasks")).await;
    assert_eq!(header_of(&response, "location"), "/admin/tasks/tasks");
    assert!(
        header_of(&response, "set-cookie").contains("Path=/admin/tasks; Max-Age"),
        "{response:?}"
    );
}
