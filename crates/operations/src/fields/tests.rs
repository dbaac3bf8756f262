use super::*;

#[test]
fn errors_have_a_pointer() {
    for (text, pointer, why) in [
        ("{", "", "not JSON"),
        ("[1]", "", "found a list"),
        (r#"{"clas":1}"#, "/clas", "did you mean class?"),
        (r#"{"task_class":1}"#, "/task_class", "did you mean class?"),
        (r#"{"a/b~":1}"#, "/a~1b~0", "known: class, priority"),
        (r#"{"class":"a","class":"b"}"#, "/class", "twice"),
        (r#"{"class":7}"#, "/class", "expected a string, found a number"),
        (r#"{"class":"\ud800"}"#, "/class", "incomplete character"),
        (r#"{"class":"a","priority":1.5}"#, "/priority", "expected a whole number"),
        (r#"{"class":"a","priority":99999999999}"#, "/priority", "a whole number"),
        (r#"{"class":"a","priority":"5"}"#, "/priority", "found a string"),
    ] {
        let read = parse(text).and_then(|value| {
            let object = Object::read(value, String::new(), &["class", "priority"])?;
            object.required_text("class")?;
            object.whole::<i32>("priority", "a whole number")
        });
        let problem = read.unwrap_err();
        assert_eq!(problem.pointer, pointer, "{text}");
        assert!(problem.message.contains(why), "{text}: {}", problem.message);
    }
}
