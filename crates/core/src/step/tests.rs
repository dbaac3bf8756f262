use super::*;

#[test]
fn step_names_exclude_number_sign() {
    for name in ["charge", "send mail", "é", &"x".repeat(200)] {
        assert_eq!(check_step_name(name), Ok(()), "{name}");
    }
    for name in ["", "a#2", "#", "a\nb", &"x".repeat(201)] {
        assert!(check_step_name(name).is_err(), "{name}");
    }
    let message = check_step_name("a#2").unwrap_err().to_string();
    assert!(message.contains("\"a#2\"") && message.contains("no `#`"), "{message}");
}

#[test]
fn signal_names_may_have_number() {
    for name in ["approved", "approved#2", "approved#17"] {
        assert_eq!(check_signal_name(name), Ok(()), "{name}");
    }
    for name in ["", "#2", "approved#", "approved#1", "approved#x", "a#2#3", "a\0", "a#02", "a#+2"]
    {
        assert!(check_signal_name(name).is_err(), "{name}");
    }
}

#[test]
fn repeated_names_get_number() {
    assert_eq!(numbered("a", 1), "a");
    assert_eq!(numbered("a", 2), "a#2");
}

#[test]
fn retries_restart_after_progress() {
    let rule = RetryRule::default();
    assert_eq!(retry_number_after(true, 7, &rule), 0);
    assert_eq!(retry_number_after(false, 7, &rule), 7);
    assert_eq!(retry_number_after(true, 7, &rule.restart_after_progress(false)), 7);
}

#[test]
fn context_fields_are_found() {
    let context = |text: &str| Json::parse(text).unwrap();
    assert!(is_awaited(&context(r#"{"awaited":true}"#)));
    assert!(!is_awaited(&context("{}")));
    assert!(!is_awaited(&context(r#"{"correlation_id":"awaited"}"#)));
    assert!(has_kept_steps(&context(r#"{"kept_steps":7}"#)));
}
