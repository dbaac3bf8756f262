use super::*;

#[test]
fn foreign_origins_are_refused() {
    for (headers, fits) in [
        (&[("sec-fetch-site", "same-origin")][..], true),
        (&[("sec-fetch-site", "cross-site"), ("content-type", "application/json")], false),
        (&[("sec-fetch-site", "same-site")], false),
        (&[("sec-fetch-site", "none")], false),
        (&[("origin", "http://127.0.0.1:8642")], true),
        (&[("origin", "http://127.0.0.1:8643")], false),
        (&[("origin", "http://evil.test"), ("content-type", "application/json")], false),
        (&[("origin", "null")], false),
        (&[("content-type", "application/json; charset=utf-8")], true),
        (&[("content-type", "application/json"), ("cookie", "a=b")], false),
        (&[("content-type", "text/plain")], false),
        (&[("content-type", "application/x-www-form-urlencoded")], false),
        (&[], false),
        (&[("authorization", "Bearer te_x"), ("content-type", "text/plain")], true),
    ] {
        let mut all = HeaderMap::new();
        all.insert("host", HeaderValue::from_static("127.0.0.1:8642"));
        for (name, value) in headers {
            all.insert(*name, HeaderValue::from_static(value));
        }
        assert_eq!(
            check_origin(&Method::POST, &Uri::from_static("/"), &all).is_ok(),
            fits,
            "{headers:?}"
        );
    }
}

#[test]
fn ambiguous_hosts_are_refused() {
    for (uri, hosts, named) in [
        ("/", &["localhost"][..], Some("localhost")),
        ("http://LOCALHOST:80/", &["localhost:80"], Some("localhost:80")),
        ("http://localhost/", &[], Some("localhost")),
        ("/", &[], Some("")),
        ("/", &["localhost", "localhost"], None),
        ("/", &["localhost", "evil.test"], None),
        ("http://evil.test/", &["localhost"], None),
        ("http://localhost:81/", &["localhost:80"], None),
    ] {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append("host", HeaderValue::from_static(host));
        }
        let uri = Uri::from_static(uri);
        assert_eq!(one_host(&uri, &headers).ok(), named, "{uri} {hosts:?}");
    }
}

#[tokio::test]
async fn hanging_requests_time_out() {
    let soon = Duration::from_millis(10);
    let response = with_timeout(soon, std::future::pending()).await;
    assert_eq!(response.status(), 503);
    assert_eq!(with_timeout(soon, async { "ok".into_response() }).await.status(), 200);
}

#[test]
fn cookies_are_found_by_name() {
    let mut headers = HeaderMap::new();
    headers.append("cookie", HeaderValue::from_static("a=1; task_engine_theme=dark"));
    headers.append("cookie", HeaderValue::from_static("b=x=y"));
    assert_eq!(cookie(&headers, "a"), Some("1"));
    assert_eq!(cookie(&headers, "b"), Some("x=y"));
    assert_eq!(cookie(&headers, "c"), None);
    assert_eq!(Theme::of(&headers), Theme::Dark);
}
