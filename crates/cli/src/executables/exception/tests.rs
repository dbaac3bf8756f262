use super::*;

fn found(text: &str) -> Option<(String, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    uncaught(&lines).map(|it| (it.exception, it.message, it.begins))
}

fn is(text: &str, exception: &str, message: &str, begins: usize) {
    let expected = Some((exception.to_owned(), message.to_owned(), begins));
    assert_eq!(found(text), expected, "{text}");
}

#[test]
fn python_exception_has_its_name() {
    is(
        "working\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\n    ~^^\n  File \"a.py\", line 2, in f\n    raise ValueError(\"no: such\")\nValueError: no: such\n",
        "ValueError",
        "no: such",
        1,
    );
    is(
        "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'a'\nDuring handling of the above exception, another exception occurred:\nTraceback (most recent call last):\n  File \"a.py\", line 2\napp.errors.Broken",
        "app.errors.Broken",
        "",
        4,
    );
    is(
        "  File \"a.py\", line 1\n    def\n       ^\nSyntaxError: invalid syntax",
        "SyntaxError",
        "invalid syntax",
        0,
    );
}

#[test]
fn node_exception_has_its_name() {
    is(
        "/srv/a.js:3\n    throw new TypeError(\"no\")\n    ^\nTypeError: no\nreally\n    at work (/srv/a.js:3:7)\n    at Module._compile (node:internal)\nNode.js v20.1.0",
        "TypeError",
        "no",
        3,
    );
    is("Error [ERR_X]: gone\n    at a (b.js:1:1) {\n  code: 'ERR_X'\n}", "Error", "gone", 0);
}

#[test]
fn ruby_exception_has_its_name() {
    is(
        "a.rb:2:in `work': no such account (ArgumentError)\n\tfrom a.rb:5:in `<main>'",
        "ArgumentError",
        "no such account",
        0,
    );
    is("x\na.rb:2:in 'Object#work': gone (Shop::NotFound)", "Shop::NotFound", "gone", 1);
}

#[test]
fn other_text_is_no_exception() {
    for text in [
        "",
        "something went wrong",
        "error: no such file (os error 2)",
        "usage: tool (Options)",
        "Traceback (most recent call last):",
        "    at home",
        "listening on a.rb:80:in (X)",
    ] {
        assert_eq!(found(text), None, "{text}");
    }
}
