//! Symbols as a person would write them.
//!
//! One binary mixes mangling schemes: std is v0, user crates may be legacy, C++ has its own. The
//! same function then reads `alloc::vec::Vec<T,A>::push`, `<alloc::vec::Vec<u8>>::push` or
//! `{{closure}}` against `{closure#0}`, and debug info has a third spelling (`{closure_env#0}`).
//! All are brought to one form, so that names compare equal wherever they come from: no hashes
//! and no numbers, `{closure}`, no turbofish, and types longer than a line cut to `…`.

use std::borrow::Cow;

/// Longest list of type arguments that is shown.
const LONGEST_ARGUMENTS: usize = 100;

/// Who made a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    Rust,
    /// C++, readable.
    Cpp,
    /// Not mangled: C, assembly, `#[no_mangle]`.
    Plain,
}

/// The name without its mangling, everything that it tells kept, except hashes.
pub fn demangle(symbol: &str) -> (Cow<'_, str>, Language) {
    if let Ok(name) = rustc_demangle::try_demangle(symbol)
        && is_rust(symbol)
    {
        return (Cow::Owned(format!("{name:#}")), Language::Rust);
    }
    let bare = without_suffix(symbol);
    if bare.starts_with("_Z")
        && let Ok(name) = cpp_demangle::Symbol::new(bare)
        && let Ok(text) = name.demangle()
    {
        return (Cow::Owned(text), Language::Cpp);
    }
    (Cow::Borrowed(bare), Language::Plain)
}

/// `_ZN…E` is C++'s scheme; rustc's names end with a hash segment of 16 hex digits.
fn is_rust(symbol: &str) -> bool {
    if !symbol.starts_with("_ZN") && !symbol.starts_with("__ZN") {
        return true;
    }
    symbol.rfind("17h").is_some_and(|at| {
        let rest = &symbol.as_bytes()[at + 3..];
        rest.len() > 16 && rest[..16].iter().all(u8::is_ascii_hexdigit) && rest[16] == b'E'
    })
}

/// What LLVM appends: `.llvm.123`, `.cold`, `.part.0`, and `.0` for a piece of a static.
fn without_suffix(symbol: &str) -> &str {
    match symbol.find('.') {
        Some(at) if at > 0 => &symbol[..at],
        _ => symbol,
    }
}

/// What a reader sees of a name in the common form.
pub fn readable_of(spelled: &str, language: Language) -> String {
    match language {
        Language::Rust => cut_arguments(&without_nested(spelled)),
        Language::Cpp => cut_arguments(spelled),
        Language::Plain => spelled.to_owned(),
    }
}

/// `f::{closure}::{closure}` -> `f::{closure}`: how deep it is nested says nothing to a reader,
/// and an async fn counts as one level or none, depending on where the name comes from.
fn without_nested(name: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(name);
    while let Some(at) = text.find("::{closure}::{") {
        text = Cow::Owned(format!(
            "{}{}",
            &text[..at],
            &text[at + "::{closure}".len()..]
        ));
    }
    text
}

/// A demangled Rust path in the common form, with all its types.
pub fn spelled(name: &str) -> String {
    // v0's shim and instantiation notes, `.0` of split statics.
    let name = strip_split(name);
    let plain = braces(&inherent(&name));
    without_turbofish(&plain)
}

/// `NAME.0` is a piece of NAME; a range `0..1` within a name is not.
fn strip_split(name: &str) -> Cow<'_, str> {
    match name.rsplit_once('.') {
        Some((head, digits))
            if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            strip_split(head)
        }
        _ => Cow::Borrowed(name),
    }
}

/// `<a::B<C>>::method` -> `a::B<C>::method`; `<A as T>::method` stays.
fn inherent(name: &str) -> Cow<'_, str> {
    if !name.starts_with('<') {
        return Cow::Borrowed(name);
    }
    let Some(close) = matching(name, 0) else {
        return Cow::Borrowed(name);
    };
    let inner = &name[1..close];
    let plain_path = inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if top_level_as(inner).is_some() || !plain_path || inner.starts_with("dyn ") {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("{}{}", inner, &name[close + 1..]))
}

/// Index of the bracket that closes the one at `open`.
pub fn matching(name: &str, open: usize) -> Option<usize> {
    let bytes = name.as_bytes();
    let mut depth = 0usize;
    for at in open..bytes.len() {
        match bytes[at] {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            // The arrow of a function type closes nothing.
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Where ` as ` stands outside of all brackets.
pub fn top_level_as(inner: &str) -> Option<usize> {
    let bytes = inner.as_bytes();
    let mut depth = 0i32;
    for at in 0..bytes.len() {
        match bytes[at] {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth -= 1,
            b' ' if depth == 0 && inner[at..].starts_with(" as ") => return Some(at),
            _ => {}
        }
    }
    None
}

/// `{{closure}}`, `{closure#3}`, `{closure_env#3}<T>` -> `{closure}`, and so for the others.
fn braces(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(open) = rest.find('{') {
        text.push_str(&rest[..open]);
        let Some(close) = matching(rest, open) else {
            rest = &rest[open..];
            break;
        };
        let inner = rest[open..=close].trim_matches(['{', '}']);
        text.push_str(brace_word(inner));
        rest = &rest[close + 1..];
    }
    text.push_str(rest);
    text
}

fn brace_word(inner: &str) -> &'static str {
    let word = inner.split(['#', ':']).next().unwrap_or_default();
    match word {
        "closure" | "closure_env" => "{closure}",
        "async_fn" | "async_fn_env" => "{async fn}",
        "async_block" | "async_block_env" => "{async block}",
        "async_closure" | "async_closure_env" | "async_closure_body" => "{async closure}",
        "async_gen_fn_env" | "async_gen_block_env" | "gen_fn_env" | "gen_block_env" => "{gen}",
        "coroutine" | "coroutine_env" => "{coroutine}",
        "impl" => "{impl}",
        "constant" | "constructor" | "K" => "{constant}",
        "vtable.shim" | "shim" => "{shim}",
        "extern" => "{extern}",
        _ => "{…}",
    }
}

/// `f::<T>` -> `f`: type arguments of functions say nothing that the function's name doesn't.
fn without_turbofish(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("::<") {
        text.push_str(&rest[..at]);
        match matching(rest, at + 2) {
            // `::<impl Trait for T>` is a path of the legacy scheme, not a list of arguments.
            Some(close) if !rest[at + 3..].starts_with("impl ") => rest = &rest[close + 1..],
            _ => {
                text.push_str(&rest[at..at + 3]);
                rest = &rest[at + 3..];
            }
        }
    }
    text.push_str(rest);
    text
}

/// Types that would fill more than a line are cut.
fn cut_arguments(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    // An outermost `<A as T>` names the impl and is cut from within.
    while let Some(open) = rest.find('<') {
        text.push_str(&rest[..=open]);
        let Some(close) = matching(rest, open) else {
            rest = &rest[open + 1..];
            break;
        };
        let inner = &rest[open + 1..close];
        if inner.len() <= LONGEST_ARGUMENTS {
            text.push_str(inner);
        } else if let Some(at) = top_level_as(inner) {
            text.push_str(&cut_arguments(&inner[..at]));
            text.push_str(" as ");
            text.push_str(&cut_arguments(&inner[at + 4..]));
        } else {
            text.push_str(&outline(inner));
        }
        text.push('>');
        rest = &rest[close + 1..];
    }
    text.push_str(rest);
    text
}

/// Types without their own arguments, if that makes them short enough.
fn outline(types: &str) -> String {
    let mut text = String::new();
    let mut rest = types;
    while let Some(open) = rest.find('<') {
        let Some(close) = matching(rest, open) else {
            break;
        };
        text.push_str(&rest[..=open]);
        text.push_str("…>");
        rest = &rest[close + 1..];
    }
    text.push_str(rest);
    if text.len() <= LONGEST_ARGUMENTS {
        text
    } else {
        "…".to_owned()
    }
}

/// What `thread_local!` and `lazy_static!` put around the name that a person gave.
const MACRO_MADE: [&str; 8] = [
    "{constant}",
    "{closure}",
    "__getit",
    "__KEY",
    "__RUST_STD_INTERNAL_VAL",
    "VAL",
    "__stability",
    "LAZY",
];

/// `a::RULES` of `a::RULES::{constant}::{closure}::__RUST_STD_INTERNAL_VAL`. None for what is
/// only a note beside the variable (the `STATE` of older versions).
pub fn thread_local(symbol: &str) -> Option<String> {
    let (name, language) = demangle(symbol);
    if language != Language::Rust {
        return Some(name.into_owned());
    }
    let name = spelled(&name);
    if name.ends_with("::__getit::STATE") {
        return None;
    }
    Some(variable(&name))
}

/// `a::DICTIONARY` of `<a::DICTIONARY as core::ops::deref::Deref>::deref::__stability::LAZY`.
pub fn static_variable(symbol: &str) -> String {
    let (name, language) = demangle(symbol);
    if language != Language::Rust {
        return name.into_owned();
    }
    variable(&spelled(&name))
}

fn variable(name: &str) -> String {
    if let Some(inner) = name.strip_prefix('<')
        && let Some(close) = matching(name, 0)
        && let Some(at) = top_level_as(&name[1..close])
        && name[close..].starts_with(">::deref::")
    {
        return inner[..at].to_owned();
    }
    let segments = segments(name);
    let made = |segment: &&str| MACRO_MADE.contains(segment);
    let kept = segments.len() - segments.iter().rev().take_while(|s| made(s)).count();
    let cut = &segments[kept..];
    // A variable that a person called VAL or LAZY is one without the macro's other parts.
    let by_macro = cut
        .iter()
        .any(|segment| segment.starts_with("__") || *segment == "{constant}");
    if kept == 0 || !by_macro {
        return name.to_owned();
    }
    segments[..kept].join("::")
}

/// The parts of a path, brackets kept whole.
pub fn segments(name: &str) -> Vec<&str> {
    let bytes = name.as_bytes();
    let (mut depth, mut start) = (0i32, 0);
    let mut parts = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth -= 1,
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => {
                parts.push(&name[start..at]);
                start = at + 2;
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(&name[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(symbol: &str) -> String {
        match demangle(symbol) {
            (name, Language::Rust) => readable(&name),
            (name, language) => readable_of(&name, language),
        }
    }

    fn readable(name: &str) -> String {
        readable_of(&spelled(name), Language::Rust)
    }

    #[test]
    fn schemes_meet_in_one_form() {
        let cases = [
            (
                "_ZN7example7handler28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE.llvm.99",
                "example::handler::{closure}",
            ),
            (
                "_RNvMs0_NtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync4once5futexNtB5_4Once4call",
                "std::sys::sync::once::futex::Once::call",
            ),
            (
                "_ZN5alloc3vec16Vec$LT$T$C$A$GT$4push17h0123456789abcdefE",
                "alloc::vec::Vec<T,A>::push",
            ),
            ("malloc", "malloc"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
            ),
            ("_ZN3foo3barE", "foo::bar"),
            ("OPENSSL_init.cold", "OPENSSL_init"),
        ];
        for (symbol, name) in cases {
            assert_eq!(function(symbol), name);
        }
    }

    #[test]
    fn arguments_are_cut_where_they_are_long() {
        let long = format!(
            "core::ptr::drop_in_place<{}>",
            "a::B<".repeat(30) + &">".repeat(30)
        );
        assert_eq!(readable(&long), "core::ptr::drop_in_place<a::B<…>>");
        let wide = format!("f<{}>", "abc::d, ".repeat(30));
        assert_eq!(readable(&wide), "f<…>");
        let of_trait = format!("<a::B<{}> as c::D>::f", "x".repeat(200));
        assert_eq!(readable(&of_trait), "<a::B<…> as c::D>::f");
        assert_eq!(readable("a::f::<b::C>::{closure#0}"), "a::f::{closure}");
        assert_eq!(
            readable("a::f::{closure#0}::{closure#1}"),
            "a::f::{closure}"
        );
        assert_eq!(readable("a::f::{closure#0}::g"), "a::f::{closure}::g");
        assert_eq!(
            readable("<fn(u8) -> u8 as a::B>::c"),
            "<fn(u8) -> u8 as a::B>::c"
        );
    }

    #[test]
    fn variables_have_the_names_that_people_gave() {
        let cases = [
            (
                "a::RULES::{{constant}}::{{closure}}::__RUST_STD_INTERNAL_VAL",
                "a::RULES",
            ),
            (
                "a::OUT::{K#0}::{closure#0}::__RUST_STD_INTERNAL_VAL",
                "a::OUT",
            ),
            ("a::CTX::__getit::__KEY", "a::CTX"),
            ("a::CTX::__getit::VAL", "a::CTX"),
            ("a::VAL", "a::VAL"),
            ("a::f::LAZY", "a::f::LAZY"),
            ("a::PARTS.1", "a::PARTS"),
            (
                "<a::DICT as core::ops::deref::Deref>::deref::__stability::LAZY",
                "a::DICT",
            ),
        ];
        for (name, wanted) in cases {
            assert_eq!(variable(&spelled(name)), wanted);
        }
        assert_eq!(
            thread_local("_ZN1a3CTX7__getit5STATE17h0123456789abcdefE"),
            None
        );
        assert_eq!(thread_local("tls_counter").as_deref(), Some("tls_counter"));
    }

    #[test]
    fn odd_names_do_no_harm() {
        for name in [
            "", "<", ">", "::", "{", "}}", "<a as ", "a::<", "(((", "é::<é", "->",
        ] {
            readable(name);
            variable(name);
            segments(name);
            function(name);
        }
    }
}
