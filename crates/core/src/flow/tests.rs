use super::*;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn task(context: &str) -> NewTask {
    NewTask { context: json(context), ..NewTask::new("a", Json::empty_object()).unwrap() }
}

#[test]
fn task_without_correlation_starts_a_flow() {
    for context in ["{}", r#"{"retry":{}}"#, r#"{"correlation_id":null}"#] {
        let origin = Origin::of(TaskId(17), &json(context));
        assert_eq!(origin.correlation_id, "17");
        assert_eq!((origin.parent_id, origin.traceparent), (None, None));
    }
}

#[test]
fn invalid_field_does_not_affect_others() {
    let odd = json(r#"{"correlation_id":"a","parent_id":"x","traceparent":7}"#);
    let origin = Origin::of(TaskId(17), &odd);
    assert_eq!(origin.correlation_id, "a");
    assert_eq!((origin.parent_id, origin.traceparent), (None, None));
    let odd = json(r#"{"correlation_id":[1],"parent_id":5,"traceparent":"00-x"}"#);
    let origin = Origin::of(TaskId(17), &odd);
    assert_eq!(origin.correlation_id, "17");
    assert_eq!((origin.parent_id, origin.traceparent), (Some(TaskId(5)), None));
}

#[test]
fn children_inherit_flow_and_name_parent() {
    let context = format!(r#"{{"correlation_id":"a","traceparent":"{TRACE}"}}"#);
    let parent = Origin::of(TaskId(3), &json(&context));
    let child = parent.for_children_of(TaskId(3)).stamp(task("{}"));
    assert_eq!(
        child.context.as_str(),
        format!(r#"{{"correlation_id":"a","parent_id":3,"traceparent":"{TRACE}"}}"#)
    );
    let origin = Origin::of(TaskId(4), &child.context);
    assert_eq!(origin.for_children_of(TaskId(4)).parent_id, Some(TaskId(4)));
    assert_eq!(origin.correlation_id, "a");
}

#[test]
fn own_correlation_is_kept() {
    let origin = Origin::of(TaskId(3), &json("{}")).for_children_of(TaskId(3));
    let long = r#"{"correlation_id":"b","n":12345678901234567890123}"#;
    let child = origin.stamp(task(long));
    assert_eq!(
        child.context.as_str(),
        r#"{"correlation_id":"b","n":12345678901234567890123,"parent_id":3}"#
    );
}

#[test]
fn numeric_correlation_names_first_task() {
    let page = |id: &str| FlowPage { correlation_id: id.into(), after: None, limit: 1 };
    assert_eq!(page("17").own_task(), Some(TaskId(17)));
    for other in ["order-17", "+17", "017", "0", "-1", "", "99999999999999999999"] {
        assert_eq!(page(other).own_task(), None, "{other}");
    }
}
