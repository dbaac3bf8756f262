use jiff::tz::TimeZone;

use super::*;
use crate::attempt::TaskError;

fn now() -> Timestamp {
    "2026-12-24T12:00:00Z".parse().unwrap()
}

fn task() -> FoundTask {
    let created_at: Timestamp = "2026-12-24T09:00:00Z".parse().unwrap();
    let row = TaskRow {
        id: TaskId(17),
        status: TaskStatus::Failed,
        class: "send_mail".into(),
        queue: "mail".into(),
        priority: 5,
        created_at,
        scheduled_at: created_at,
        updated_at: now(),
        attempts: 3,
        retry_number: 2,
        instance: Some("web-1".into()),
        error: Some(TaskError::new("Http", "429 Too Many Requests")),
        is_blocked: false,
    };
    let parameters = Json::parse(
        r#"{"user":{"id":42,"name":"Ann","vip":true,"none":null},"tags":["a","b"],"a.b":1.50}"#,
    );
    FoundTask {
        row,
        correlation_id: "order-17".into(),
        parent_id: Some(TaskId(9)),
        parameters: parameters.unwrap(),
        context: Json::parse(r#"{"rerun_of":9}"#).unwrap(),
        started_at: Some("2026-12-24T11:00:00Z".parse().unwrap()),
        ended_at: Some("2026-12-24T11:30:00Z".parse().unwrap()),
    }
}

#[test]
fn terms_hold_or_do_not() {
    for (text, holds) in [
        ("", true),
        ("status=failed class=send_mail queue=mail", true),
        ("status=failed class=other", false),
        ("status=stopped,failed", true),
        ("status!=stopped,failed", false),
        ("class=a,send_mail", true),
        ("class~MAIL", true),
        ("class!~mail", false),
        ("class!=a,b", true),
        ("started>2026-12-24T10:00:00Z started<2026-12-24T11:10:00Z", true),
        ("started<2026-12-24T11:10:00Z ended>2026-12-24T11:20:00Z", true),
        ("ended>2026-12-24T11:30:00Z", false),
        ("ended>now-1h ended<now-20m", true),
        ("started>now-30m", false),
        ("error~429", true),
        (r#"error~"too many""#, true),
        ("error=Http", true),
        (r#"error="429 Too Many Requests""#, true),
        (r#"error="Http: 429 Too Many Requests""#, true),
        ("error=429", false),
        ("error!~429", false),
        ("id=17", true),
        ("id>=17 id<=17 id>16 id<18", true),
        ("id>17", false),
        ("id!=1,2,17", false),
        ("priority>=5 attempts=3 retries<3", true),
        ("instance=web-1 correlation=order-17", true),
        ("parent=9 parent>=9 parent!=17", true),
        ("parent=17", false),
        ("created<now-2h", true),
        ("created<now-3h", false),
        ("created<=now-3h", true),
        ("created>now-2h", false),
        ("created>now-1d created<now", true),
        ("created>2026-12-24", true),
        ("created<2026-12-24T09:00:01Z", true),
        ("updated>now-1s due<now-1h due<now+1h", true),
        ("params.user.id=42 params.user.id=42.0", true),
        ("params.user.id>41 params.user.id<=42", true),
        ("params.user.id=4,42", true),
        ("params.user.id~4", true),
        ("params.user.name=Ann params.user.name~nn", true),
        ("params.user.name>Al params.user.name<B", true),
        ("params.user.vip=true params.user.none=null", true),
        ("params.user.vip>0", false),
        ("params.tags.1=b", true),
        ("params.tags.2=b", false),
        (r#"params."a.b"=1.5"#, true),
        ("params.nothing=1", false),
        ("params.nothing!=1", true),
        ("params.user.id.deeper!=1", true),
        ("context.rerun_of=9", true),
    ] {
        let filter = Filter::parse(text, &TimeZone::UTC).unwrap();
        assert_eq!(filter.matches(&task(), now()), holds, "{text}");
    }
}

#[test]
fn only_negations_hold_without_value() {
    let mut task = task();
    (task.row.instance, task.row.error, task.parent_id) = (None, None, None);
    for (text, holds) in [
        ("instance=web-1", false),
        ("instance!=web-1", true),
        (r#"error~"""#, false),
        ("error!~429", true),
        ("parent=9", false),
        ("parent<9", false),
        ("parent!=9", true),
    ] {
        let filter = Filter::parse(text, &TimeZone::UTC).unwrap();
        assert_eq!(filter.matches(&task, now()), holds, "{text}");
    }
}
