//! Writes the implementation of `Task`.

use std::time::Duration;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Fields, LitStr};

use crate::attributes::{Attributes, Backoff, Errors, LimitAttribute, LimitKind, Scope, Unique};
use crate::suggest::did_you_mean;

pub(crate) fn expand(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::default();
    let attributes = Attributes::read(&input.attrs, &mut errors);
    let is_supported = check_type(input, &mut errors);
    check_parameters(input, &mut errors);
    check_secrets(input, &attributes, &mut errors);
    check_limit_keys(input, &attributes, &mut errors);
    let key_fields = check_key(input, &attributes, &mut errors);
    refuse_misplaced(input, &mut errors);
    let Some(errors) = errors.into_compile_error() else {
        return implementation(input, &attributes, &key_fields);
    };
    if !is_supported {
        return errors;
    }
    // With an implementation, the only errors are those of the attributes.
    let implementation = implementation(input, &attributes.minimal(), &[]);
    quote!(#errors #implementation)
}

fn implementation(
    input: &DeriveInput,
    attributes: &Attributes,
    key_fields: &[TokenStream],
) -> TokenStream {
    let task_engine = match &attributes.task_engine {
        Some(path) => quote!(#path),
        None => quote!(::task_engine),
    };
    let name = &input.ident;
    let class = match &attributes.class {
        Some(class) => class.clone(),
        None => LitStr::new(&snake_case(&name.unraw().to_string()), name.span()),
    };
    let secrets = (!attributes.secrets.is_empty()).then(|| {
        let secrets = &attributes.secrets;
        quote!(const SECRETS: &'static [&'static str] = &[#(#secrets),*];)
    });
    let options = options(attributes, &task_engine);
    let unique = attributes.unique.as_ref().map(|it| unique(it, key_fields, &task_engine));
    quote! {
        #[automatically_derived]
        impl #task_engine::Task for #name {
            const CLASS: &'static str = #class;
            #secrets
            #options
            #unique
        }
    }
}

fn options(attributes: &Attributes, task_engine: &TokenStream) -> Option<TokenStream> {
    let retry = retry(attributes, task_engine).map(|rule| quote!(.retry(#rule)));
    let timeout = attributes.timeout.map(time).map(|time| quote!(.timeout(#time)));
    let queue = attributes.queue.as_ref().map(|queue| quote!(.queue(#queue)));
    let priority = attributes.priority.map(|priority| quote!(.priority(#priority)));
    let grace = attributes.cancel_grace.map(time).map(|time| quote!(.cancel_grace(#time)));
    let limits = attributes.limits.iter();
    let limits = limits.map(|one| limit(one, attributes.key.as_ref(), task_engine));
    let mut all: Vec<_> = [retry, timeout, queue, priority, grace].into_iter().flatten().collect();
    all.extend(limits);
    (!all.is_empty()).then(|| {
        quote! {
            fn options() -> #task_engine::TaskOptions {
                <#task_engine::TaskOptions as ::core::default::Default>::default() #(#all)*
            }
        }
    })
}

fn limit(
    limit: &LimitAttribute,
    common_key: Option<&LitStr>,
    task_engine: &TokenStream,
) -> TokenStream {
    let options = quote!(#task_engine::limit::LimitOptions);
    let made = match limit.kind {
        LimitKind::Max(max) => quote!(#options::max(#max)),
        LimitKind::Rate { max, per, even } => {
            let per = time(per);
            let even = even.then(|| quote!(.even()));
            quote!(#options::rate(#task_engine::limit::Rate::new(#max, #per) #even))
        }
        LimitKind::InOrder => quote!(#options::in_order()),
        LimitKind::Fair => quote!(<#options as ::core::default::Default>::default()),
    };
    let common_key = common_key.filter(|_| limit.is_short);
    let key = limit.key.as_ref().or(common_key).map(|key| quote!(.key(#key)));
    quote!(.limit(#made #key))
}

fn retry(attributes: &Attributes, task_engine: &TokenStream) -> Option<TokenStream> {
    if let Some(rule) = &attributes.retry {
        return Some(quote!(#rule));
    }
    let backoff = attributes.backoff.map(|backoff| match backoff {
        Backoff::Fixed(wait) => {
            let wait = time(wait);
            quote!(.first_delay(#wait).factor(1.0))
        }
        Backoff::Doubling(first, last) => {
            let first = time(first);
            let last = last.map(time).map(|last| quote!(.cap(#last)));
            quote!(.first_delay(#first) #last)
        }
    });
    let jitter = attributes.jitter.map(|part| quote!(.jitter(#part)));
    let restart =
        attributes.restart_after_progress.map(|restart| quote!(.restart_after_progress(#restart)));
    let is_default = backoff.is_none() && jitter.is_none() && restart.is_none();
    if attributes.retries.is_none() && is_default {
        return None;
    }
    let rule = match attributes.retries {
        Some(0) => quote!(#task_engine::RetryRule::never()),
        Some(number) => quote!(#task_engine::RetryRule::times(#number)),
        None => quote!(<#task_engine::RetryRule as ::core::default::Default>::default()),
    };
    Some(quote!(#rule #backoff #jitter #restart))
}

fn unique(unique: &Unique, key_fields: &[TokenStream], task_engine: &TokenStream) -> TokenStream {
    let by = match &unique.key {
        Some((text, key)) => {
            let mut format = Literal::string(&key.format);
            format.set_span(text.span());
            quote!(by(::std::format!(#format #(, #key_fields)*)))
        }
        None => quote!(by_parameters(self)),
    };
    let scope = unique.scope.map(|scope| match scope {
        Scope::Waiting => quote!(Waiting),
        Scope::Active => quote!(Active),
        Scope::Within(period) => {
            let period = time(period);
            quote!(Within(#period))
        }
    });
    let scope = scope.map(|scope| quote!(.scope(#task_engine::Scope::#scope)));
    let on_conflict = unique.on_conflict.map(|action| {
        let action = format_ident!("{action}");
        quote!(.on_conflict(#task_engine::OnConflict::#action))
    });
    quote! {
        fn unique(&self) -> ::core::option::Option<#task_engine::Unique> {
            ::core::option::Option::Some(#task_engine::Unique::#by #scope #on_conflict)
        }
    }
}

fn time(time: Duration) -> TokenStream {
    let (secs, nanos) = (time.as_secs(), time.subsec_nanos());
    quote!(::core::time::Duration::new(#secs, #nanos))
}

/// `SendMail` as `send_mail`, `HTTPRequest` as `http_request`.
fn snake_case(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, &c) in chars.iter().enumerate() {
        let previous = at.checked_sub(1).map(|before| chars[before]);
        let begins_word = c.is_uppercase()
            && previous.is_some_and(|before| {
                let next_is_lower = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
                before.is_lowercase()
                    || before.is_numeric()
                    || (before.is_uppercase() && next_is_lower)
            });
        if begins_word {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// Whether a task can be of this type at all.
fn check_type(input: &DeriveInput, errors: &mut Errors) -> bool {
    let name = &input.ident;
    if let Data::Union(union) = &input.data {
        errors.add(union.union_token.span, "a task is a struct or an enum, not a union");
        return false;
    }
    if input.generics.params.is_empty() {
        return true;
    }
    let place = input.generics.params.span();
    if input.generics.lifetimes().next().is_some() {
        errors.add(
            place,
            format!("a task owns its parameters; remove the lifetime of `{name}` and use owned types, like `String` instead of `&str`"),
        );
    } else {
        errors.add(
            place,
            format!("a task class has one name, so `{name}` cannot be generic; remove the type parameters, or write `impl Task for {name}<…>` for each type, with its own `CLASS`"),
        );
    }
    false
}

/// Parameters are stored as a JSON object: refuses what Serde would write as a list or
/// string. Unusual attributes of Serde are not interpreted.
fn check_parameters(input: &DeriveInput, errors: &mut Errors) {
    if changes_serde(&input.attrs) {
        return;
    }
    let name = &input.ident;
    match &input.data {
        Data::Struct(data) => {
            if let Fields::Unnamed(fields) = &data.fields
                && fields.unnamed.len() != 1
            {
                let advice = if fields.unnamed.is_empty() {
                    format!("write `struct {name};`")
                } else {
                    format!("give them names: `struct {name} {{ … }}`")
                };
                errors.add(
                    fields.span(),
                    format!("parameters are a JSON object, but these fields would be stored as a list; {advice}"),
                );
            }
        }
        Data::Enum(data) => {
            let units = data.variants.iter().filter(|it| matches!(it.fields, Fields::Unit));
            for variant in units.filter(|variant| !changes_serde(&variant.attrs)) {
                let name = &variant.ident;
                errors.add(
                    name.span(),
                    format!("parameters are a JSON object, but this variant would be stored as a string; write `{name} {{}}`, or add `#[serde(tag = \"type\")]` to the enum"),
                );
            }
        }
        Data::Union(_) => {}
    }
}

/// The words inside all `#[serde(…)]`.
fn serde_words(attributes: &[Attribute]) -> Vec<String> {
    let mut words = Vec::new();
    for attribute in attributes.iter().filter(|it| it.path().is_ident("serde")) {
        // What cannot be read is reported by Serde.
        let _ = attribute.parse_nested_meta(|meta| {
            words.extend(meta.path.get_ident().map(|word| word.unraw().to_string()));
            while !meta.input.is_empty() && !meta.input.peek(syn::Token![,]) {
                meta.input.parse::<proc_macro2::TokenTree>()?;
            }
            Ok(())
        });
    }
    words
}

/// Whether these attributes change the form or the names in JSON.
fn changes_serde(attributes: &[Attribute]) -> bool {
    let harmless = ["default", "deny_unknown_fields", "crate", "bound", "expecting", "alias"];
    serde_words(attributes).iter().any(|word| !harmless.contains(&word.as_str()))
}

/// The names of all parameters, if they are those of the fields.
fn parameter_names(input: &DeriveInput) -> Option<Vec<String>> {
    let Data::Struct(data) = &input.data else { return None };
    let Fields::Named(fields) = &data.fields else { return None };
    let is_renamed = |attributes: &[Attribute]| {
        serde_words(attributes).iter().any(|word| ["rename", "flatten"].contains(&word.as_str()))
    };
    let is_known =
        !changes_serde(&input.attrs) && !fields.named.iter().any(|field| is_renamed(&field.attrs));
    is_known.then(|| field_names(&data.fields))
}

/// The key of a limit is a parameter that is not a secret.
fn check_limit_keys(input: &DeriveInput, attributes: &Attributes, errors: &mut Errors) {
    let names = parameter_names(input);
    let own = attributes.limits.iter().filter_map(|limit| limit.key.as_ref());
    for key in own.chain(&attributes.key) {
        let typed = key.value();
        if let Some(names) = &names
            && !names.contains(&typed)
        {
            errors.add(key.span(), no_such_field(input, &typed, names));
        } else if attributes.secrets.iter().any(|it| contains(it, std::slice::from_ref(&typed))) {
            errors.add(
                key.span(),
                format!("the key {typed:?} is a secret, and keys are visible; use another field"),
            );
        }
    }
}

/// A secret with a wrong name would not be hidden.
fn check_secrets(input: &DeriveInput, attributes: &Attributes, errors: &mut Errors) {
    let Some(names) = parameter_names(input) else { return };
    for path in &attributes.secrets {
        let value = path.value();
        let first = value.split('.').next().unwrap_or_default();
        if first != "*" && !first.is_empty() && !names.iter().any(|name| name == first) {
            errors.add(path.span(), no_such_field(input, first, &names));
        }
    }
}

fn field_names(fields: &Fields) -> Vec<String> {
    let name = |(at, field): (usize, &syn::Field)| match &field.ident {
        Some(name) => name.unraw().to_string(),
        None => at.to_string(),
    };
    fields.iter().enumerate().map(name).collect()
}

fn no_such_field(input: &DeriveInput, typed: &str, names: &[String]) -> String {
    let mut hint = did_you_mean(typed, names.iter().map(String::as_str));
    if hint.is_empty() && !names.is_empty() {
        hint = format!("; its fields are {}", names.join(", "));
    }
    format!("`{}` has no field `{typed}`{hint}", input.ident)
}

/// The expressions of the fields in the key.
fn check_key(
    input: &DeriveInput,
    attributes: &Attributes,
    errors: &mut Errors,
) -> Vec<TokenStream> {
    let Some(unique) = &attributes.unique else { return Vec::new() };
    let Some((text, key)) = &unique.key else {
        if !attributes.secrets.is_empty() {
            errors.add(
                unique.place,
                "a key of all parameters would contain the secrets, and keys are visible; name the fields of the key: `unique = \"order {order}\"`",
            );
        }
        return Vec::new();
    };
    // At the place of the literal, with the names of the type.
    let place = Span::call_site().located_at(text.span());
    let names = match &input.data {
        Data::Struct(data) => field_names(&data.fields),
        _ if key.fields.is_empty() => return Vec::new(),
        _ => {
            errors.add(
                text.span(),
                "a key cannot name fields of an enum; write `unique` alone for a key of all parameters, or implement `Task` by hand",
            );
            return Vec::new();
        }
    };
    let mut expressions = Vec::new();
    for path in &key.fields {
        if !names.contains(&path[0]) {
            errors.add(text.span(), no_such_field(input, &path[0], &names));
            continue;
        }
        if let Some(secret) = attributes.secrets.iter().find(|secret| contains(secret, path)) {
            errors.add(
                text.span(),
                format!(
                    "the key contains the secret {:?}, and keys are visible; use another field",
                    secret.value()
                ),
            );
            continue;
        }
        let steps = path.iter().map(|step| member(step, place));
        expressions.push(quote_spanned!(place=> self #(.#steps)*));
    }
    expressions
}

/// Whether one of the paths leads to the other.
fn contains(secret: &LitStr, field: &[String]) -> bool {
    let secret = secret.value();
    secret.split('.').zip(field).all(|(hidden, step)| hidden == "*" || hidden == step)
}

fn member(step: &str, place: Span) -> TokenStream {
    if let Ok(number) = step.parse::<u32>() {
        let mut index = Literal::u32_unsuffixed(number);
        index.set_span(place);
        return quote!(#index);
    }
    // A field may be called `r#type`.
    let name = syn::parse_str::<Ident>(step).map(|_| Ident::new(step, place));
    let name = name.unwrap_or_else(|_| Ident::new_raw(step, place));
    quote!(#name)
}

/// `#[task(…)]` belongs to the type.
fn refuse_misplaced(input: &DeriveInput, errors: &mut Errors) {
    let variants = match &input.data {
        Data::Enum(data) => data.variants.iter().collect(),
        _ => Vec::new(),
    };
    let fields = match &input.data {
        Data::Struct(data) => data.fields.iter().collect(),
        _ => Vec::new(),
    };
    let of_variants = variants.iter().flat_map(|variant| {
        variant.attrs.iter().chain(variant.fields.iter().flat_map(|field| &field.attrs))
    });
    let of_fields = fields.iter().flat_map(|field| &field.attrs);
    for attribute in of_variants.chain(of_fields).filter(|it| it.path().is_ident("task")) {
        errors.add(
            attribute.span(),
            format!("`#[task(…)]` belongs to the type; move it above `{}`", input.ident),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> String {
        expand(&syn::parse_str(text).unwrap()).to_string()
    }

    #[test]
    fn class_is_snake_case_of_type() {
        for (name, class) in [
            ("SendMail", "send_mail"),
            ("HTTPRequest", "http_request"),
            ("Import2Files", "import2_files"),
            ("Tidy", "tidy"),
            ("already_snake", "already_snake"),
            ("É", "é"),
        ] {
            assert_eq!(snake_case(name), class);
        }
        assert!(expanded("struct r#Type;").contains("\"type\""));
    }

    /// Each line: a type, and a part of its error.
    #[test]
    fn mistakes_have_messages() {
        for (text, why) in [
            ("#[task] struct A;", "needs a list"),
            ("#[task(class)] struct A;", "`class` needs a value; write `class = "),
            ("#[task(class = )] struct A;", "`class` needs a value"),
            ("#[task(class = \"\")] struct A;", "the name of the class is empty"),
            ("#[task(class = \"a\\n\")] struct A;", "control character"),
            ("#[task(class = 5)] struct A;", "`class` is a string literal"),
            ("#[task(queue = \"\")] struct A;", "the name of the queue is empty"),
            ("#[task(quue = \"a\")] struct A;", "did you mean `queue`?"),
            ("#[task(max_attempts = 5)] struct A;", "did you mean `retries`?"),
            ("#[task(colour = 5)] struct A;", "known are class, queue"),
            ("#[task(queue = \"a\", queue = \"b\")] struct A;", "`queue` is given twice"),
            ("#[task(queue = \"a\")] #[task(queue = \"b\")] struct A;", "given twice"),
            ("#[task(priority = 3000000000)] struct A;", "from -2147483648 to 2147483647"),
            ("#[task(retries = -1)] struct A;", "whole number from 0 to"),
            ("#[task(retries = \"5\")] struct A;", "write `retries = 5`"),
            ("#[task(timeout = \"30\")] struct A;", "write \\\"30s\\\""),
            ("#[task(timeout = \"0s\")] struct A;", "remove `timeout`"),
            ("#[task(timeout = 30)] struct A;", "`timeout` is a string literal"),
            ("#[task(backoff = \"1h..30s\")] struct A;", "the shorter one first"),
            ("#[task(backoff = \"0s..30s\")] struct A;", "does not grow"),
            ("#[task(backoff = \"400 days\")] struct A;", "366 days"),
            ("#[task(jitter = 2)] struct A;", "from 0 to 1"),
            ("#[task(restart_after_progress = 0)] struct A;", "is `true` or `false`; write"),
            ("#[task(retries = 0, backoff = \"1s\")] struct A;", "remove `backoff`"),
            ("#[task(retries = 1, retry = RetryRule::never())] struct A;", "the whole rule"),
            ("#[task(unique = \"{b}\")] struct A { a: u8 }", "its fields are a"),
            ("#[task(unique = \"{ordr}\")] struct A { order: u8 }", "did you mean `order`?"),
            ("#[task(unique = \"{b}\")] enum A { B { b: u8 } }", "fields of an enum"),
            ("#[task(unique(scope = \"waitin\"))] struct A;", "did you mean `waiting`?"),
            ("#[task(unique(scope = \"1 month\"))] struct A;", "in days"),
            ("#[task(unique(on_conflict = \"drop\"))] struct A;", "unknown action"),
            ("#[task(unique(within = \"1h\"))] struct A;", "did you mean `scope`?"),
            ("#[task(unique, secrets(\"a\"))] struct A { a: u8 }", "contain the secrets"),
            (
                "#[task(unique = \"{a.b}\", secrets(\"a\"))] struct A { a: u8 }",
                "the key contains the secret",
            ),
            ("#[task(limit = 0)] struct A;", "whole number from 1 to 10000; write `limit = 2`"),
            ("#[task(limit)] struct A;", "`limit` needs a value"),
            ("#[task(limit = \"2\")] struct A;", "write `limit = 2`"),
            ("#[task(limit(key = \"a\"))] struct A { a: u8 }", "`limit` needs a maximum"),
            ("#[task(limit(max = 0))] struct A;", "from 1 to 10000"),
            ("#[task(limit = 2, key = \"b\")] struct A { a: u8 }", "no field `b`"),
            ("#[task(limit(max = 2, key = \"b\"))] struct A { a: u8 }", "no field `b`"),
            ("#[task(limit = 2, key = \"\")] struct A;", "the name of a parameter"),
            ("#[task(limit = 2, in_order)] struct A;", "one at a time"),
            ("#[task(key = \"a\")] struct A { a: u8 }", "belongs to `limit = …`"),
            ("#[task(key = \"a\", limit(max = 1))] struct A { a: u8 }", "belongs to `limit = …`"),
            ("#[task(concurrency = 2)] struct A;", "did you mean `limit`?"),
            ("#[task(rate = \"100\")] struct A;", "write `rate = \\\"100/1s\\\"`"),
            ("#[task(rate = \"0/1s\")] struct A;", "a rate is 1 to"),
            ("#[task(rate = \"5/0s\")] struct A;", "1 ms to 366 days"),
            ("#[task(rate = \"5/x\")] struct A;", "compile_error"),
            ("#[task(rate(max = 5))] struct A;", "needs `max` and `per`"),
            ("#[task(in_order = true)] struct A;", "write `in_order or in_order("),
            ("#[task(fair = \"b\")] struct A { a: u8 }", "no field `b`"),
            (
                "#[task(limit = 2, key = \"a\", secrets(\"a\"))] struct A { a: u8 }",
                "the key \\\"a\\\" is a secret",
            ),
            ("#[task(secrets(\"b\"))] struct A { a: u8 }", "no field `b`"),
            ("#[task(secrets(\"a..b\"))] struct A { a: u8 }", "not the path"),
            ("#[task(secrets(\"a\", \"a\"))] struct A { a: u8 }", "given twice"),
            ("#[task(secrets = \"a\")] struct A { a: u8 }", "write `secrets("),
            ("#[task(secrets(5))] struct A { a: u8 }", "write `secrets("),
            ("struct A(u8, u8);", "give them names"),
            ("struct A();", "write `struct A;`"),
            ("enum A { B }", "write `B {}`"),
            ("struct A<T>(T);", "cannot be generic"),
            ("struct A<'a> { a: &'a str }", "use owned types"),
            ("union A { a: u8 }", "not a union"),
            ("struct A { #[task(secret)] a: u8 }", "move it above `A`"),
        ] {
            let code = expanded(text);
            assert!(code.contains("compile_error"), "{text}: {code}");
            assert!(code.contains(why), "{text}: {code}");
        }
    }

    #[test]
    fn all_mistakes_are_reported_together() {
        let code = expanded("#[task(quue = \"a\", timeout = \"x\", retries = -1)] struct A;");
        assert_eq!(code.matches("compile_error").count(), 3, "{code}");
        // And there is an implementation, so that nothing else fails.
        assert_eq!(code.matches("impl :: task_engine :: Task for A").count(), 1, "{code}");
    }

    #[test]
    fn unusual_serde_attributes_skip_checks() {
        for text in [
            "#[serde(into = \"B\")] struct A(u8, u8);",
            "#[serde(tag = \"type\")] enum A { B }",
            "#[serde(rename_all = \"camelCase\")] #[task(secrets(\"cardNo\"))] struct A { card_no: u8 }",
            "#[task(secrets(\"no\"))] struct A { #[serde(rename = \"no\")] card_no: u8 }",
            "#[task(unique = \"{card.name}\", secrets(\"card.no\"))] struct A { card: u8 }",
        ] {
            let code = expanded(text);
            assert!(!code.contains("compile_error"), "{text}: {code}");
        }
    }
}
