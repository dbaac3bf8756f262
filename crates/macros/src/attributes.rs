//! Reads the attribute `#[task(…)]` and checks its values.

use std::time::Duration;

use proc_macro2::{Span, TokenTree};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, Ident, Lit, LitStr, Path, Token, UnOp, parenthesized};

use crate::duration;
use crate::key::Key;
use crate::suggest::did_you_mean;

/// As in `task_engine_core::task`.
const NAME_BYTES_MAX: usize = 200;
/// As in `task_engine_core::retry`.
const DELAY_MAX: Duration = Duration::from_secs(366 * 86_400);
/// As in `task_engine_core::limit`.
const LIMITS_MAX: usize = 3;
const MAX_RUNNING_MAX: u32 = 10_000;
const RATE_MAX: u32 = 1_000_000;
/// As in `task_engine_core::secret`.
const SECRETS_MAX: usize = 100;

/// The attributes, each with an example for messages.
const KNOWN: [(&str, &str); 18] = [
    ("class", "class = \"send_mail\""),
    ("queue", "queue = \"mail\""),
    ("priority", "priority = 5"),
    ("retries", "retries = 5"),
    ("backoff", "backoff = \"30s\" or backoff = \"30s..1h\""),
    ("jitter", "jitter = 0.2"),
    ("restart_after_progress", "restart_after_progress = false"),
    ("retry", "retry = RetryRule::times(5)"),
    ("timeout", "timeout = \"30s\""),
    ("cancel_grace", "cancel_grace = \"2s\""),
    ("unique", "unique = \"order {order}\""),
    ("limit", "limit = 2 or limit(max = 2, key = \"customer\")"),
    ("rate", "rate = \"100/1s\" or rate(max = 100, per = \"1s\", key = \"customer\")"),
    ("in_order", "in_order or in_order(key = \"account\")"),
    ("fair", "fair = \"tenant\""),
    ("key", "limit = 2, key = \"customer\""),
    ("secrets", "secrets(\"password\", \"card.number\")"),
    ("crate", "crate = my_crate::task_engine"),
];

/// Words of other libraries, and what they are called here.
const OTHER_WORDS: [(&str, &str); 13] = [
    ("name", "class"),
    ("kind", "class"),
    ("attempts", "retries"),
    ("max_attempts", "retries"),
    ("max_retries", "retries"),
    ("delay", "backoff"),
    ("unique_key", "unique"),
    ("concurrency", "limit"),
    ("max_concurrency", "limit"),
    ("rate_limit", "rate"),
    ("throttle", "rate"),
    ("ordered", "in_order"),
    ("sensitive", "secrets"),
];

const KNOWN_IN_UNIQUE: [(&str, &str); 3] = [
    ("key", "key = \"order {order}\""),
    ("scope", "scope = \"waiting\", \"active\" or a duration like \"1h\""),
    ("on_conflict", "on_conflict = \"replace\""),
];

const KNOWN_IN_LIMIT: [(&str, &str); 2] = [("max", "max = 2"), ("key", "key = \"customer\"")];

const KNOWN_IN_RATE: [(&str, &str); 4] = [
    ("max", "max = 100"),
    ("per", "per = \"1s\""),
    ("key", "key = \"customer\""),
    ("even", "even"),
];

const KNOWN_IN_ORDER: [(&str, &str); 1] = [("key", "key = \"account\"")];

/// Attributes, each with an example.
type Known = [(&'static str, &'static str)];

/// All errors found so far: they are reported together.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn add(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// The value, or `None` with the error kept for later.
    fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn into_compile_error(self) -> Option<proc_macro2::TokenStream> {
        self.0.map(|error| error.into_compile_error())
    }
}

/// The waits between retries.
#[derive(Clone, Copy)]
pub(crate) enum Backoff {
    /// The same wait each time.
    Fixed(Duration),
    /// Doubles, up to a limit if there is one.
    Doubling(Duration, Option<Duration>),
}

/// Which tasks conflict.
#[derive(Clone, Copy)]
pub(crate) enum Scope {
    Waiting,
    Active,
    Within(Duration),
}

/// `unique` in one of its forms.
pub(crate) struct Unique {
    pub(crate) place: Span,
    /// Without a key, all parameters are the key.
    pub(crate) key: Option<(LitStr, Key)>,
    pub(crate) scope: Option<Scope>,
    /// The name of the variant of `OnConflict`.
    pub(crate) on_conflict: Option<&'static str>,
}

/// What a limit is about.
#[derive(Clone, Copy)]
pub(crate) enum LimitKind {
    /// So many attempts at a time.
    Max(u32),
    /// So many starts in a window, perhaps spread evenly.
    Rate { max: u32, per: Duration, even: bool },
    /// One at a time, in order.
    InOrder,
    /// Equal shares for all keys.
    Fair,
}

/// `limit`, `rate`, `in_order` or `fair`.
pub(crate) struct LimitAttribute {
    pub(crate) kind: LimitKind,
    /// The parameter that is its key, if it has its own.
    pub(crate) key: Option<LitStr>,
    /// Whether the attribute `key` beside it is its key: it is written without parentheses.
    pub(crate) is_short: bool,
}

/// What `#[task(…)]` says.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) class: Option<LitStr>,
    pub(crate) queue: Option<LitStr>,
    pub(crate) priority: Option<i32>,
    pub(crate) retries: Option<u32>,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) jitter: Option<f64>,
    pub(crate) restart_after_progress: Option<bool>,
    pub(crate) retry: Option<Expr>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel_grace: Option<Duration>,
    pub(crate) unique: Option<Unique>,
    pub(crate) limits: Vec<LimitAttribute>,
    /// The key of limits without a key of their own.
    pub(crate) key: Option<LitStr>,
    pub(crate) secrets: Vec<LitStr>,
    pub(crate) task_engine: Option<Path>,
    given: Vec<(String, Span)>,
}

impl Attributes {
    pub(crate) fn read(attributes: &[Attribute], errors: &mut Errors) -> Self {
        let mut all = Self::default();
        for attribute in attributes.iter().filter(|it| it.path().is_ident("task")) {
            if attribute.meta.require_list().is_err() {
                errors.add(
                    attribute.meta.span(),
                    "`#[task]` needs a list; write `#[task(queue = \"mail\")]`, or remove it",
                );
                continue;
            }
            let read = attribute.parse_nested_meta(|meta| {
                let one = all.read_one(&meta, errors);
                // The next attribute is read even if this one is wrong.
                if errors.keep(one).is_none() { skip_value(meta.input) } else { Ok(()) }
            });
            errors.keep(read);
        }
        all.check_together(errors);
        all
    }

    /// Only what the type needs to be a task.
    pub(crate) fn minimal(self) -> Self {
        Self { class: self.class, task_engine: self.task_engine, ..Self::default() }
    }

    fn read_one(&mut self, meta: &ParseNestedMeta<'_>, errors: &mut Errors) -> syn::Result<()> {
        let name = name_of(meta, &KNOWN, &OTHER_WORDS)?;
        refuse_repeated(&mut self.given, name, meta)?;
        match name {
            "class" => self.class = errors.keep(name_text(meta, name)?),
            "queue" => self.queue = errors.keep(name_text(meta, name)?),
            "priority" => {
                let expression = value(meta, &KNOWN)?;
                self.priority = errors.keep(integer(&expression, (i32::MIN, i32::MAX), &KNOWN[2]));
            }
            "retries" => {
                let expression = value(meta, &KNOWN)?;
                self.retries = errors.keep(integer(&expression, (0, u32::MAX), &KNOWN[3]));
            }
            "backoff" => {
                let text = text(meta, &KNOWN)?;
                self.backoff = errors.keep(backoff(&text));
            }
            "jitter" => {
                let expression = value(meta, &KNOWN)?;
                self.jitter = errors.keep(part(&expression));
            }
            "restart_after_progress" => {
                let expression = value(meta, &KNOWN)?;
                self.restart_after_progress = errors.keep(truth(&expression, &KNOWN[6]));
            }
            "retry" => self.retry = Some(value(meta, &KNOWN)?),
            "timeout" => {
                let text = text(meta, &KNOWN)?;
                self.timeout = errors.keep(time(&text)).filter(|time| {
                    if time.is_zero() {
                        errors.add(text.span(), "a timeout of 0 would end every attempt at once; remove `timeout` for no limit");
                    }
                    !time.is_zero()
                });
            }
            "cancel_grace" => {
                let text = text(meta, &KNOWN)?;
                self.cancel_grace = errors.keep(time(&text));
            }
            "unique" => self.unique = Some(unique(meta, errors)?),
            "limit" => {
                let limit = limit(meta, errors)?;
                self.limits.extend(limit);
            }
            "rate" => {
                let rate = rate(meta, errors)?;
                self.limits.extend(rate);
            }
            "in_order" => {
                let order = in_order(meta, errors)?;
                self.limits.push(order);
            }
            "fair" => {
                let text = text(meta, &KNOWN)?;
                let key = errors.keep(parameter(text));
                self.limits.push(LimitAttribute { kind: LimitKind::Fair, key, is_short: false });
            }
            "key" => {
                let text = text(meta, &KNOWN)?;
                self.key = errors.keep(parameter(text));
            }
            "secrets" => self.secrets = secrets(meta, errors)?,
            "crate" => {
                if !meta.input.peek(Token![=]) {
                    return Err(no_value("crate", meta.path.span(), &KNOWN));
                }
                self.task_engine = Some(meta.value()?.parse()?);
            }
            other => unreachable!("{other} is not in the list"),
        }
        Ok(())
    }

    fn place(&self, name: &str) -> Option<Span> {
        self.given.iter().find(|(given, _)| given == name).map(|(_, place)| *place)
    }

    /// Checks attributes that exclude each other.
    fn check_together(&self, errors: &mut Errors) {
        self.check_limits(errors);
        for name in ["retries", "backoff", "jitter", "restart_after_progress"] {
            let Some(place) = self.place(name) else { continue };
            if self.place("retry").is_some() {
                errors.add(place, format!("`retry` is the whole rule; remove `{name}` or `retry`"));
            } else if name != "retries" && self.retries == Some(0) {
                errors.add(place, format!("`retries = 0` means no retry; remove `{name}`"));
            }
        }
    }
}

impl Attributes {
    fn check_limits(&self, errors: &mut Errors) {
        if let Some(place) = self.place("key") {
            // A wrong one has its own error.
            let is_given = |name| self.place(name).is_some();
            let is_wrong =
                self.limits.is_empty() && ["limit", "rate", "in_order"].into_iter().any(is_given);
            if !is_wrong && !self.limits.iter().any(|limit| limit.is_short) {
                errors.add(
                    place,
                    "`key` belongs to `limit = …`, `rate = …` or `in_order`; write `limit = 2, key = \"customer\"`, `fair = \"customer\"` for equal shares, or `unique = \"…\"` for a unique task",
                );
            }
        }
        if self.limits.len() > LIMITS_MAX
            && let Some(place) = self.place("fair")
        {
            let message = format!(
                "a class has at most {LIMITS_MAX} limits; remove `fair`, because a limit with a key shares workers among its keys"
            );
            errors.add(place, message);
        }
        if let (Some(place), true) = (self.place("limit"), self.place("in_order").is_some())
            && self.limits.iter().any(|one| matches!(one.kind, LimitKind::Max(max) if max != 1))
        {
            let message = "tasks that run in order run one at a time; remove `limit` or `in_order`";
            errors.add(place, message);
        }
    }
}

/// The known name of an attribute.
fn name_of(
    meta: &ParseNestedMeta<'_>,
    known: &'static Known,
    other_words: &[(&str, &'static str)],
) -> syn::Result<&'static str> {
    let typed = match meta.path.get_ident() {
        Some(ident) => ident.unraw().to_string(),
        None => return Err(meta.error("an attribute is a single word")),
    };
    if let Some((name, _)) = known.iter().find(|(name, _)| *name == typed) {
        return Ok(name);
    }
    let names = || known.iter().map(|(name, _)| *name);
    let other = other_words.iter().find(|(word, _)| *word == typed);
    let hint = match other {
        Some((_, name)) => format!("; did you mean `{name}`?"),
        None => did_you_mean(&typed, names()),
    };
    let hint = if hint.is_empty() {
        format!("; known are {}", names().collect::<Vec<_>>().join(", "))
    } else {
        hint
    };
    Err(meta.error(format!("unknown attribute `{typed}`{hint}")))
}

fn refuse_repeated(
    given: &mut Vec<(String, Span)>,
    name: &str,
    meta: &ParseNestedMeta<'_>,
) -> syn::Result<()> {
    if given.iter().any(|(earlier, _)| earlier == name) {
        return Err(meta.error(format!("`{name}` is given twice; remove one")));
    }
    given.push((name.to_owned(), meta.path.span()));
    Ok(())
}

/// Skips to the next comma.
fn skip_value(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

fn no_value(name: &str, place: Span, known: &Known) -> syn::Error {
    syn::Error::new(place, format!("`{name}` needs a value; write `{}`", example(name, known)))
}

fn example(name: &str, known: &Known) -> &'static str {
    known.iter().find(|(known, _)| *known == name).map_or("", |(_, example)| example)
}

fn value(meta: &ParseNestedMeta<'_>, known: &Known) -> syn::Result<Expr> {
    let name = meta.path.get_ident().map(|name| name.unraw().to_string()).unwrap_or_default();
    if !meta.input.peek(Token![=]) {
        return Err(no_value(&name, meta.path.span(), known));
    }
    let input = meta.value()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(no_value(&name, meta.path.span(), known));
    }
    let mut expression: Expr = input.parse()?;
    // A value that comes from a `macro_rules!` is in an invisible group.
    while let Expr::Group(group) = expression {
        expression = *group.expr;
    }
    Ok(expression)
}

fn text(meta: &ParseNestedMeta<'_>, known: &Known) -> syn::Result<LitStr> {
    let expression = value(meta, known)?;
    match &expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
    .ok_or_else(|| {
        let name = meta.path.get_ident().map(Ident::to_string).unwrap_or_default();
        let example = example(&name, known);
        syn::Error::new_spanned(
            &expression,
            format!("`{name}` is a string literal; write `{example}`"),
        )
    })
}

/// The name of a class or queue. The outer error leaves a value to skip.
fn name_text(meta: &ParseNestedMeta<'_>, what: &str) -> syn::Result<syn::Result<LitStr>> {
    let text = text(meta, &KNOWN)?;
    let name = text.value();
    let why = if name.is_empty() {
        "is empty".to_owned()
    } else if name.chars().any(char::is_control) {
        "contains a control character".to_owned()
    } else if name.len() > NAME_BYTES_MAX {
        format!("has {} bytes, at most {NAME_BYTES_MAX} are allowed", name.len())
    } else {
        return Ok(Ok(text));
    };
    let message = format!("the name of the {what} {why}; write `{}`", example(what, &KNOWN));
    Ok(Err(syn::Error::new(text.span(), message)))
}

fn integer<T: std::str::FromStr + std::fmt::Display + PartialOrd>(
    expression: &Expr,
    (least, most): (T, T),
    (name, example): &(&str, &str),
) -> syn::Result<T> {
    let digits = match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => Some(number.base10_digits().to_owned()),
            _ => None,
        },
        Expr::Unary(unary) => match (&unary.op, &*unary.expr) {
            (UnOp::Neg(_), Expr::Lit(literal)) => match &literal.lit {
                Lit::Int(number) => Some(format!("-{}", number.base10_digits())),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    let number = digits.and_then(|digits| digits.parse().ok());
    number.filter(|number| (&least..=&most).contains(&number)).ok_or_else(|| {
        syn::Error::new_spanned(
            expression,
            format!("`{name}` is a whole number from {least} to {most}; write `{example}`"),
        )
    })
}

/// A number from 0 to 1.
fn part(expression: &Expr) -> syn::Result<f64> {
    let number = match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Float(number) => number.base10_parse::<f64>().ok(),
            Lit::Int(number) => number.base10_parse::<f64>().ok(),
            _ => None,
        },
        _ => None,
    };
    number.filter(|number| (0.0..=1.0).contains(number)).ok_or_else(|| {
        let message = "`jitter` is the random part of each wait, from 0 to 1; write `jitter = 0.2`";
        syn::Error::new_spanned(expression, message)
    })
}

fn truth(expression: &Expr, (name, example): &(&str, &str)) -> syn::Result<bool> {
    if let Expr::Lit(literal) = expression
        && let Lit::Bool(truth) = &literal.lit
    {
        return Ok(truth.value);
    }
    let message = format!("`{name}` is `true` or `false`; write `{example}`");
    Err(syn::Error::new_spanned(expression, message))
}

fn time(text: &LitStr) -> syn::Result<Duration> {
    duration::parse(&text.value()).map_err(|why| syn::Error::new(text.span(), why))
}

fn backoff(text: &LitStr) -> syn::Result<Backoff> {
    let error = |why: &str| syn::Error::new(text.span(), why);
    let parse = |part: &str| match duration::parse(part) {
        Ok(wait) if wait > DELAY_MAX => Err(error("no wait is longer than 366 days")),
        Ok(wait) => Ok(wait),
        Err(why) => Err(error(&why)),
    };
    let value = text.value();
    match value.split_once("..") {
        None => Ok(Backoff::Fixed(parse(&value)?)),
        Some((first, "")) => Ok(Backoff::Doubling(parse(first)?, None)),
        Some((first, last)) => {
            let (first, last) = (parse(first)?, parse(last)?);
            if first > last {
                return Err(error(
                    "the first wait is longer than the last; write the shorter one first, like \"30s..1h\"",
                ));
            }
            if first.is_zero() {
                return Err(error("a wait of 0 does not grow; write `backoff = \"1s..1h\"`"));
            }
            Ok(Backoff::Doubling(first, Some(last)))
        }
    }
}

fn unique(meta: &ParseNestedMeta<'_>, errors: &mut Errors) -> syn::Result<Unique> {
    let mut unique = Unique { place: meta.path.span(), key: None, scope: None, on_conflict: None };
    if meta.input.peek(Token![=]) {
        let text = text(meta, &KNOWN)?;
        unique.key = errors.keep(key(text));
    } else if meta.input.peek(syn::token::Paren) {
        let mut given = Vec::new();
        meta.parse_nested_meta(|inner| {
            let one = unique_option(&inner, &mut given, &mut unique, errors);
            if errors.keep(one).is_none() { skip_value(inner.input) } else { Ok(()) }
        })?;
    }
    Ok(unique)
}

fn unique_option(
    meta: &ParseNestedMeta<'_>,
    given: &mut Vec<(String, Span)>,
    unique: &mut Unique,
    errors: &mut Errors,
) -> syn::Result<()> {
    let other_words = [("within", "scope"), ("period", "scope"), ("conflict", "on_conflict")];
    let name = name_of(meta, &KNOWN_IN_UNIQUE, &other_words)?;
    refuse_repeated(given, name, meta)?;
    let text = text(meta, &KNOWN_IN_UNIQUE)?;
    match name {
        "key" => unique.key = errors.keep(key(text)),
        "scope" => unique.scope = errors.keep(scope(&text)),
        _ => unique.on_conflict = errors.keep(on_conflict(&text)),
    }
    Ok(())
}

fn key(text: LitStr) -> syn::Result<(LitStr, Key)> {
    let key = Key::parse(&text.value()).map_err(|why| syn::Error::new(text.span(), why))?;
    Ok((text, key))
}

fn scope(text: &LitStr) -> syn::Result<Scope> {
    let value = text.value();
    match value.as_str() {
        "waiting" => Ok(Scope::Waiting),
        "active" => Ok(Scope::Active),
        period => match duration::parse(period) {
            Ok(period) if period >= Duration::from_millis(1) => Ok(Scope::Within(period)),
            Ok(_) => {
                Err(syn::Error::new(text.span(), "a period of 0 has no conflicts; write \"1h\""))
            }
            Err(why) => {
                let hint = did_you_mean(period, ["waiting", "active"]);
                let why = if period.contains(|c: char| c.is_ascii_digit()) {
                    format!(": {why}")
                } else {
                    hint
                };
                let message = format!(
                    "unknown scope {period:?}; write \"waiting\", \"active\", or a duration like \"1h\"{why}"
                );
                Err(syn::Error::new(text.span(), message))
            }
        },
    }
}

fn on_conflict(text: &LitStr) -> syn::Result<&'static str> {
    const ACTIONS: [(&str, &str); 4] = [
        ("keep", "Keep"),
        ("replace", "Replace"),
        ("replace_parameters", "ReplaceParameters"),
        ("replace_time", "ReplaceTime"),
    ];
    let token = text.value().replace('-', "_");
    match ACTIONS.iter().find(|(name, _)| *name == token) {
        Some((_, variant)) => Ok(variant),
        None => {
            let hint = did_you_mean(&token, ACTIONS.map(|(name, _)| name));
            let message = format!(
                "unknown action {:?}; write \"keep\", \"replace\", \"replace_parameters\" or \"replace_time\"{hint}",
                text.value()
            );
            Err(syn::Error::new(text.span(), message))
        }
    }
}

fn secrets(meta: &ParseNestedMeta<'_>, errors: &mut Errors) -> syn::Result<Vec<LitStr>> {
    let needs_list = || no_value("secrets", meta.path.span(), &KNOWN);
    if !meta.input.peek(syn::token::Paren) {
        return Err(needs_list());
    }
    let content;
    parenthesized!(content in meta.input);
    let paths = Punctuated::<LitStr, Token![,]>::parse_terminated(&content)
        .map_err(|error| syn::Error::new(error.span(), needs_list()))?;
    if paths.is_empty() || paths.len() > SECRETS_MAX {
        let message = format!(
            "`secrets` lists 1 to {SECRETS_MAX} paths; write `{}`, or name a whole object",
            example("secrets", &KNOWN)
        );
        return Err(syn::Error::new(meta.path.span(), message));
    }
    let mut known = Vec::new();
    for path in &paths {
        let value = path.value();
        let named = value.split('.').all(|step| !step.trim().is_empty());
        if !named || value.len() > NAME_BYTES_MAX || value.chars().any(char::is_control) {
            errors.add(
                path.span(),
                format!("{value:?} is not the path of a parameter; write names separated by dots, like \"card.number\""),
            );
        } else if known.contains(&value) {
            errors.add(path.span(), format!("the secret {value:?} is given twice; remove one"));
        } else {
            known.push(value);
        }
    }
    Ok(paths.into_iter().collect())
}

/// `limit = 2`, or `limit(max = 2, key = "customer")`.
fn limit(meta: &ParseNestedMeta<'_>, errors: &mut Errors) -> syn::Result<Option<LimitAttribute>> {
    if !meta.input.peek(syn::token::Paren) {
        let expression = value(meta, &KNOWN)?;
        let max = integer(&expression, (1, MAX_RUNNING_MAX), &("limit", "limit = 2"));
        let max = errors.keep(max);
        return Ok(max.map(|max| LimitAttribute {
            kind: LimitKind::Max(max),
            key: None,
            is_short: true,
        }));
    }
    let (mut max, mut key, mut given) = (None, None, Vec::new());
    let mut wrong = false;
    meta.parse_nested_meta(|inner| {
        let one = (|| {
            let name = name_of(&inner, &KNOWN_IN_LIMIT, &[])?;
            refuse_repeated(&mut given, name, &inner)?;
            if name == "key" {
                key = Some(parameter(text(&inner, &KNOWN_IN_LIMIT)?)?);
            } else {
                let expression = value(&inner, &KNOWN_IN_LIMIT)?;
                max = Some(integer(&expression, (1, MAX_RUNNING_MAX), &KNOWN_IN_LIMIT[0])?);
            }
            Ok(())
        })();
        wrong |= one.is_err();
        if errors.keep(one).is_none() { skip_value(inner.input) } else { Ok(()) }
    })?;
    match max {
        Some(max) => Ok(Some(LimitAttribute { kind: LimitKind::Max(max), key, is_short: false })),
        None if wrong => Ok(None),
        None => {
            Err(meta.error("`limit` needs a maximum; write `limit(max = 2, key = \"customer\")`"))
        }
    }
}

/// `rate = "100/1s"`, or `rate(max = 100, per = "1s", key = "customer", even)`.
fn rate(meta: &ParseNestedMeta<'_>, errors: &mut Errors) -> syn::Result<Option<LimitAttribute>> {
    if !meta.input.peek(syn::token::Paren) {
        let text = text(meta, &KNOWN)?;
        let rate = errors.keep(rate_text(&text));
        return Ok(rate.map(|kind| LimitAttribute { kind, key: None, is_short: true }));
    }
    let (mut max, mut per, mut key, mut even, mut given) = (None, None, None, false, Vec::new());
    let mut wrong = false;
    meta.parse_nested_meta(|inner| {
        let one = (|| {
            let name = name_of(&inner, &KNOWN_IN_RATE, &[("window", "per"), ("period", "per")])?;
            refuse_repeated(&mut given, name, &inner)?;
            match name {
                "max" => {
                    let expression = value(&inner, &KNOWN_IN_RATE)?;
                    max = Some(integer(&expression, (1, RATE_MAX), &KNOWN_IN_RATE[0])?);
                }
                "per" => {
                    let text = text(&inner, &KNOWN_IN_RATE)?;
                    per = Some(window(&text, &text.value())?);
                }
                "key" => key = Some(parameter(text(&inner, &KNOWN_IN_RATE)?)?),
                _ if inner.input.peek(Token![=]) => {
                    even = truth(&value(&inner, &KNOWN_IN_RATE)?, &("even", "even"))?;
                }
                _ => even = true,
            }
            Ok(())
        })();
        wrong |= one.is_err();
        if errors.keep(one).is_none() { skip_value(inner.input) } else { Ok(()) }
    })?;
    match (max, per) {
        (Some(max), Some(per)) => Ok(Some(LimitAttribute {
            kind: LimitKind::Rate { max, per, even },
            key,
            is_short: false,
        })),
        _ if wrong => Ok(None),
        _ => Err(meta.error("`rate` needs `max` and `per`; write `rate(max = 100, per = \"1s\")`")),
    }
}

/// `100/1s`: the starts, and the window.
fn rate_text(text: &LitStr) -> syn::Result<LimitKind> {
    let value = text.value();
    let parts = value.split_once('/');
    let max = parts.and_then(|(max, _)| max.trim().parse::<u32>().ok());
    let (Some(max), Some((_, per))) = (max.filter(|max| (1..=RATE_MAX).contains(max)), parts)
    else {
        let message =
            format!("a rate is 1 to {RATE_MAX} starts and a window; write `rate = \"100/1s\"`");
        return Err(syn::Error::new(text.span(), message));
    };
    Ok(LimitKind::Rate { max, per: window(text, per.trim())?, even: false })
}

fn window(text: &LitStr, per: &str) -> syn::Result<Duration> {
    let error = |why: String| syn::Error::new(text.span(), why);
    match duration::parse(per).map_err(error)? {
        per if per < Duration::from_millis(1) || per > DELAY_MAX => {
            Err(error("the window of a rate is 1 ms to 366 days; write \"1s\"".to_owned()))
        }
        per => Ok(per),
    }
}

/// `in_order`, or `in_order(key = "account")`.
fn in_order(meta: &ParseNestedMeta<'_>, errors: &mut Errors) -> syn::Result<LimitAttribute> {
    let mut key = None;
    let is_short = !meta.input.peek(syn::token::Paren);
    if !is_short {
        let mut given = Vec::new();
        meta.parse_nested_meta(|inner| {
            let one = (|| {
                let name = name_of(&inner, &KNOWN_IN_ORDER, &[])?;
                refuse_repeated(&mut given, name, &inner)?;
                key = Some(parameter(text(&inner, &KNOWN_IN_ORDER)?)?);
                Ok(())
            })();
            if errors.keep(one).is_none() { skip_value(inner.input) } else { Ok(()) }
        })?;
    } else if meta.input.peek(Token![=]) {
        return Err(meta.error(format!("write `{}`", example("in_order", &KNOWN))));
    }
    Ok(LimitAttribute { kind: LimitKind::InOrder, key, is_short })
}

/// The name of a parameter.
fn parameter(text: LitStr) -> syn::Result<LitStr> {
    let name = text.value();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let message = "a key is the name of a parameter; write `key = \"customer\"`";
        return Err(syn::Error::new(text.span(), message));
    }
    Ok(text)
}
