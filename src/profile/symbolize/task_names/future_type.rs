//! The name of a task, from the type of its root future.
//!
//! What is spawned is seldom the future that a person wrote: it is pinned, boxed, timed out,
//! instrumented, or run by some library's own async block. Those are unwrapped until something
//! is left that names the work. The whole type stays the full name, since two tasks may differ
//! in nothing else.

use crate::profile::target::names::{self, matching};

/// Types that only carry another future, by their last name. A type of the program's own is never
/// taken for one of these.
const CARRIERS: [&str; 45] = [
    "Abortable",
    "AndThen",
    "AssertUnwindSafe",
    "BlockingTask",
    "Box",
    "CatchUnwind",
    "Coop",
    "Either",
    "Flatten",
    "Fuse",
    "Inspect",
    "InspectErr",
    "InspectOk",
    "Instrumented",
    "IntoFuture",
    "LocalFutureObj",
    "ManuallyDrop",
    "Map",
    "MapErr",
    "MapInto",
    "MapOk",
    "MapOkOrElse",
    "MaybeDone",
    "NeverError",
    "OrElse",
    "Pin",
    "PollFn",
    "Remote",
    "Race",
    "RunUntilCancelledFuture",
    "RunUntilCancelledFutureOwned",
    "Root",
    "Select",
    "SentryFuture",
    "TaskLocalFuture",
    "Then",
    "Timeout",
    "TrackedFuture",
    "TryMaybeDone",
    "TrySelect",
    "Unconstrained",
    "UnitError",
    "UnwrapOrElse",
    "WithContext",
    "WithDispatch",
];

/// Nesting that is followed.
const DEEPEST: usize = 24;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Root<'a> {
    /// Path of a function's body, closure or type, as spelled in the evidence.
    Path(&'a str),
    /// A trait object: the type says nothing.
    Dyn,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unwrapped<'a> {
    pub root: Root<'a>,
    /// It runs on the blocking pool.
    pub blocking: bool,
}

impl Unwrapped<'_> {
    pub fn what(&self) -> What {
        match self.blocking {
            true => What::Closure,
            false => What::Future,
        }
    }
}

/// What a path without debug info's notation stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Future,
    /// Run on the blocking pool.
    Closure,
    /// Given to a function that may take either.
    Either,
}

/// What a person would name of this type. `is_own` says whether a crate is the program's.
pub(super) fn unwrap<'a>(text: &'a str, is_own: &dyn Fn(&str) -> bool) -> Unwrapped<'a> {
    let (mut at, mut blocking) = (text.trim(), false);
    for _ in 0..DEEPEST {
        at = without_reference(at);
        if at.starts_with("dyn ") {
            return Unwrapped {
                root: Root::Dyn,
                blocking,
            };
        }
        let segments = names::segments(at);
        let last = segments.last().copied().unwrap_or_default();
        let (base, _) = split_arguments(last);
        let foreign = !is_own(crate_of(at));
        blocking |= foreign && base == "BlockingTask";
        let next = if foreign && CARRIERS.contains(&base) {
            carried(last)
        } else if foreign && last.starts_with('{') {
            // A library's async block around a future that it was given.
            spawned_through(&segments, is_own)
        } else {
            None
        };
        match next {
            Some(inner) => at = inner,
            None => break,
        }
    }
    Unwrapped {
        root: Root::Path(at),
        blocking,
    }
}

fn without_reference(text: &str) -> &str {
    let mut rest = text.trim();
    loop {
        let before = rest;
        for prefix in ["&", "mut ", "*const ", "*mut "] {
            rest = rest.strip_prefix(prefix).unwrap_or(rest).trim_start();
        }
        if rest.starts_with('(') && matching(rest, 0) == Some(rest.len() - 1) {
            // Parentheses around a trait object; a tuple names nothing.
            rest = rest[1..rest.len() - 1].trim();
        }
        if rest == before {
            return rest;
        }
    }
}

/// The argument that is the future: one that is a function's body if there is one, else the first.
fn carried(segment: &str) -> Option<&str> {
    let arguments = split_arguments(segment).1;
    let body = arguments.iter().find(|argument| is_body(argument));
    body.or_else(|| arguments.first()).copied()
}

/// The future that a function of the program's own was given: what runs below `supervised(f)`
/// is told by `f`.
pub(super) fn given<'a>(path: &'a str, is_own: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    spawned_through(&names::segments(path), is_own)
}

/// A future of the program's own among the type arguments of a library's function.
fn spawned_through<'a>(segments: &[&'a str], is_own: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    let arguments = segments
        .iter()
        .flat_map(|segment| split_arguments(segment).1);
    arguments
        .filter(|argument| is_own(crate_of(deepest_carried(argument, is_own))))
        .find(|argument| is_body(deepest_carried(argument, is_own)))
}

fn deepest_carried<'a>(text: &'a str, is_own: &dyn Fn(&str) -> bool) -> &'a str {
    let mut at = without_reference(text);
    for _ in 0..DEEPEST {
        let last = names::segments(at).last().copied().unwrap_or_default();
        let carrier = CARRIERS.contains(&split_arguments(last).0) && !is_own(crate_of(at));
        match carrier.then(|| carried(last)).flatten() {
            Some(inner) => at = without_reference(inner),
            None => break,
        }
    }
    at
}

/// The body of an async fn or block, or a closure.
fn is_body(text: &str) -> bool {
    let last = names::segments(text).last().copied().unwrap_or_default();
    // Where the notation tells, a plain closure is not a future.
    last.starts_with('{') && !last.starts_with("{closure_env") && !last.starts_with("{impl")
}

pub(super) fn crate_of(text: &str) -> &str {
    let rest = text.trim_start_matches('<');
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &rest[..end.unwrap_or(rest.len())]
}

/// `Map<A, B>` -> (`Map`, [`A`, `B`]); `{async_fn_env#0}<A>` likewise.
pub(super) fn split_arguments(segment: &str) -> (&str, Vec<&str>) {
    let from = if segment.starts_with('{') {
        matching(segment, 0).map_or(0, |close| close + 1)
    } else {
        0
    };
    let Some(open) = segment[from..].find('<').map(|at| at + from) else {
        return (segment, Vec::new());
    };
    let close = matching(segment, open).unwrap_or(segment.len());
    let inner = segment.get(open + 1..close).unwrap_or_default();
    (&segment[..open], split_list(inner))
}

/// Splits at commas outside of brackets; lifetimes are no arguments.
fn split_list(inner: &str) -> Vec<&str> {
    let bytes = inner.as_bytes();
    let (mut depth, mut start) = (0i32, 0);
    let mut parts = Vec::new();
    for at in 0..bytes.len() {
        match bytes[at] {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(inner[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(inner[start..].trim());
    parts.retain(|part| !part.is_empty() && !part.starts_with('\''));
    parts
}

/// The path as a person writes it: `server::handle` for the body of an async fn,
/// `server::main::{async block}`, `server::Server::serve` for a method of an impl.
pub(super) fn display(path: &str, what: What) -> String {
    let spelled = names::spelled(path);
    let spelled = of_implementor(&spelled);
    let segments: Vec<String> = names::segments(&spelled)
        .into_iter()
        .map(|segment| split_arguments(segment).0.to_owned())
        .collect();
    let bodies = segments
        .iter()
        .filter(|segment| segment.starts_with('{'))
        .count();
    let last = segments.last().map_or("", String::as_str);
    let mut kept: Vec<&str> = segments
        .iter()
        .map(String::as_str)
        // `<impl A for B>` of the legacy scheme, `{impl#1}` of debug info.
        .filter(|segment| !segment.starts_with('{') && !segment.is_empty())
        .collect();
    match last {
        "{async fn}" => {}
        "{async block}" | "{async closure}" => kept.push(last),
        // Without debug info the notation is the same for all. A future that is one level below
        // a function is that async fn's body; one further down is a block in it.
        "{closure}" => match what {
            What::Future if bodies > 1 => kept.push("{async block}"),
            What::Closure => kept.push("{closure}"),
            What::Either if bodies > 1 => kept.push("{closure}"),
            _ => {}
        },
        _ => {}
    }
    kept.join("::")
}

/// `<a::B as c::D>::f` -> `a::B::f`.
fn of_implementor(name: &str) -> String {
    if name.starts_with('<')
        && let Some(close) = matching(name, 0)
        && let Some(at) = names::top_level_as(&name[1..close])
    {
        let implementor = &name[1..1 + at];
        if implementor.contains("::") {
            return format!(
                "{}{}",
                implementor.trim_start_matches(['&', '<']),
                &name[close + 1..]
            );
        }
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        let is_own = |name: &str| name == "server";
        let unwrapped = unwrap(text, &is_own);
        let Root::Path(path) = unwrapped.root else {
            return "dyn".to_owned();
        };
        let shown = display(path, unwrapped.what());
        match given(path, &is_own) {
            Some(inner) => match unwrap(inner, &is_own).root {
                Root::Path(inner) => format!("{shown}<{}>", display(inner, What::Either)),
                Root::Dyn => shown,
            },
            None => shown,
        }
    }

    const CASES: &[(&str, &str)] = &[
        ("server::handle::{async_fn_env#0}", "server::handle"),
        (
            "server::handle::{async_fn_env#0}<server::Db>",
            "server::handle",
        ),
        ("server::handle::{{closure}}", "server::handle"),
        (
            "server::main::{async_block#0}::{async_block_env#1}",
            "server::main::{async block}",
        ),
        (
            "server::main::{{closure}}::{{closure}}",
            "server::main::{async block}",
        ),
        (
            "<server::Server>::serve::{closure#0}",
            "server::Server::serve",
        ),
        (
            "<server::A as server::Run>::run::{closure#0}",
            "server::A::run",
        ),
        ("server::Poller<u8>", "server::Poller"),
        (
            "server::<impl server::Run for &str>::run::{{closure}}",
            "server::run",
        ),
        (
            "core::pin::Pin<alloc::boxed::Box<server::handle::{async_fn_env#0}, alloc::alloc::Global>>",
            "server::handle",
        ),
        (
            "core::pin::Pin<alloc::boxed::Box<(dyn core::future::future::Future<Output=()> + core::marker::Send), alloc::alloc::Global>>",
            "dyn",
        ),
        (
            "core::pin::Pin<alloc::boxed::Box<dyn core::future::future::Future+Output = ()>>",
            "dyn",
        ),
        (
            "tracing::instrument::Instrumented<tokio::time::timeout::Timeout<server::handle::{{closure}}>>",
            "server::handle",
        ),
        (
            "tokio::task::task_local::TaskLocalFuture<server::Context,server::handle::{{closure}}>",
            "server::handle",
        ),
        (
            "futures_util::future::future::map::Map<server::handle::{async_fn_env#0}, server::main::{closure_env#0}>",
            "server::handle",
        ),
        (
            "lib::spawn_logged<server::handle::{{closure}}>::{{closure}}",
            "server::handle",
        ),
        (
            "lib::spawn_logged::{async_block_env#0}<server::handle::{async_fn_env#0}>",
            "server::handle",
        ),
        (
            "hyper::server::conn::http1::Connection<tokio::net::TcpStream, server::main::{closure_env#0}>",
            "hyper::server::conn::http1::Connection",
        ),
        (
            "tokio::runtime::blocking::task::BlockingTask<server::main::{async_block#0}::{closure_env#1}>",
            "server::main::{closure}",
        ),
        (
            "tokio::runtime::blocking::task::BlockingTask<server::main::{{closure}}::{{closure}}>",
            "server::main::{closure}",
        ),
        (
            "tokio::runtime::blocking::task::BlockingTask<tokio::runtime::scheduler::multi_thread::worker::Launch::launch::{{closure}}>",
            "tokio::runtime::scheduler::multi_thread::worker::Launch::launch::{closure}",
        ),
    ];

    #[test]
    fn futures_are_named_by_what_a_person_wrote() {
        for (text, wanted) in CASES {
            assert_eq!(name(text), *wanted, "{text}");
        }
    }

    #[test]
    fn functions_are_named_with_the_future_they_were_given() {
        let cases = [
            "server::supervised::{async_fn_env#0}<server::handle::{async_fn_env#0}>",
            "server::supervised<server::handle::{{closure}}>::{{closure}}",
            "server::supervised::{async_fn_env#0}<core::pin::Pin<alloc::boxed::Box<server::handle::{async_fn_env#0}, alloc::alloc::Global>>>",
        ];
        for text in cases {
            assert_eq!(name(text), "server::supervised<server::handle>", "{text}");
        }
        let with_closure = "server::retry::{async_fn_env#0}<server::main::{closure_env#0}>";
        assert_eq!(name(with_closure), "server::retry");
    }

    #[test]
    fn own_types_are_never_carriers() {
        assert_eq!(
            name("server::Timeout<server::handle::{{closure}}>"),
            "server::Timeout<server::handle>"
        );
    }

    #[test]
    fn odd_types_do_no_harm() {
        for text in [
            "",
            "<",
            "Pin<",
            "()",
            "(a, b)",
            "Box<>",
            "{",
            "fn(u8) -> Pin<u8>",
            "((",
            "é<é",
        ] {
            name(text);
        }
    }
}
