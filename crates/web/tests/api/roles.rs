//! Every route with every role.

use std::fmt::Write as _;

use task_engine_web::{Access, Dashboard, Role, Route};

use crate::client::{Client, sqlite};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/roles.txt");

/// Path parameters that exist in no store.
fn path_of(route: &Route) -> String {
    let pieces = route.path.split('/').map(|piece| match piece {
        "{id}" => "999999",
        piece if piece.starts_with('{') => "nothing",
        piece => piece,
    });
    pieces.collect::<Vec<_>>().join("/")
}

/// `in`, or the refusal.
async fn access(client: &Client, route: &Route) -> String {
    let body = (route.method != "GET").then_some("{}");
    let response = client.head(route.method, &path_of(route), body).await;
    match response.status.as_u16() {
        status @ (401 | 403) => status.to_string(),
        303 if response.header("location").starts_with("/login?to=") => "login".to_owned(),
        _ => "in".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_checks_its_role() {
    let tables = sqlite().await;
    let closed = tables.with(Access::closed());
    let mut clients = vec![("anonymous", None, closed.clone())];
    for role in Role::ALL {
        let token = tables.token(&format!("a {role}"), role).await;
        clients.push((role.as_str(), Some(role), closed.token(&token)));
    }
    let mut table = String::new();
    for route in Dashboard::routes() {
        let needs = route.needs.map_or("none", Role::as_str);
        let _ = write!(table, "{:6} {:38} {needs:8}", route.method, route.path);
        for (name, role, client) in &clients {
            let access = access(client, &route).await;
            let may = route.needs.is_none() || *role >= route.needs;
            assert_eq!(access == "in", may, "{name} at {} {}: {access}", route.method, route.path);
            if role.is_some() && !may {
                assert_eq!(access, "403", "{name} at {} {}", route.method, route.path);
            }
            let _ = write!(table, " {access:5}");
        }
        table = table.trim_end().to_owned() + "\n";
    }
    let head = format!(
        "{:6} {:38} {:8} {:5} {:5} {:5} {:5}\n",
        "", "", "needs", "none", "view", "oper", "admin"
    );
    compare(&(head + &table));
}

/// Changes of routes and roles must be deliberate.
fn compare(table: &str) {
    if std::env::var_os("UPDATE_ROLES").is_some() {
        std::fs::write(GOLDEN, table).expect("a file");
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    let differs = table.lines().zip(golden.lines().chain(std::iter::repeat("(nothing)")));
    let first = differs.into_iter().find(|(now, then)| now != then);
    assert!(
        table == golden,
        "routes or roles have changed. If that is intended, run this test with UPDATE_ROLES=1 and commit tests/roles.txt. The first difference (now, then): {first:#?}"
    );
}

#[tokio::test]
async fn routes_are_unique() {
    let mut all: Vec<_> =
        Dashboard::routes().into_iter().map(|route| (route.path, route.method)).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

/// Open routes match exactly.
#[tokio::test]
async fn open_routes_match_exactly() {
    let tables = sqlite().await;
    let client = tables.with(Access::closed());
    for path in ["/api/x/livez/y", "/livez/..", "/api/v1/livez", "/livez/", "/metrics/livez"] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    for path in ["/api/v1/tasks?livez", "/api/v1/tasks/livez", "/api/v1/flows/readyz", "/events"] {
        client.get(path).await.problem(401);
    }
    let open: Vec<_> =
        Dashboard::routes().into_iter().filter(|it| it.needs.is_none()).map(|it| it.path).collect();
    assert_eq!(
        open,
        ["/assets/{name}", "/login", "/login", "/logout", "/theme", "/livez", "/readyz"],
        "each of these is open for a reason"
    );
}
