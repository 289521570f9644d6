//! What the functions of a vtable say about the type of its task.
//!
//! Debug info and v0 symbols name the type outright. Legacy symbols of generic functions don't,
//! but those of drop glue do (`drop_in_place<Stage<server::handle::{{closure}}>>`), and the
//! vtable's functions call it; and the poll function leads to the future's own body.
//!
//! Every piece keeps the address that it was found at. Which of them can be trusted is decided
//! where all vtables are known.

use crate::profile::target::names::{self, Language};
use crate::profile::target::{DebugInfo, Symbol};

use super::super::entries::Entries;
use super::super::module::Module;
use super::code;
use super::future_type::split_arguments;
use super::vtables::{Role, Vtable};

/// Calls are followed so deep, into tokio's own functions and the glue between.
const DEEPEST: usize = 6;

const MOST_FUNCTIONS: usize = 200;

/// Ascending by how directly it names the type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// A function that the poll function calls: the future's body, or something that it calls.
    Body,
    /// The glue that drops the future or its output.
    Stage,
    /// The glue that drops the whole task.
    Cell,
    /// The type arguments of tokio's own functions.
    Named,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Evidence {
    pub kind: Kind,
    /// Of the function that says it.
    pub address: u64,
    /// The type as spelled; several if several functions were merged.
    pub types: Vec<String>,
}

/// Types named outright.
pub(super) fn named(module: &Module, vtable: &Vtable) -> Vec<Evidence> {
    let mut found = Vec::new();
    for (role, address) in &vtable.functions {
        if *role == Role::Schedule {
            continue;
        }
        let types = named_at(module, *address, *address);
        if !types.is_empty() {
            found.push(Evidence {
                kind: Kind::Named,
                address: *address,
                types,
            });
        }
    }
    found
}

/// The first type argument of tokio's task functions at an address, from debug info, else from
/// v0 symbols.
pub(super) fn named_at(module: &Module, address: u64, function: u64) -> Vec<String> {
    let mut types: Vec<String> = Vec::new();
    if let Some((info, entries)) = module.entries() {
        types.extend(described(info, entries, address));
    }
    if types.is_empty() {
        for symbol in module.symbols.at(function) {
            types.extend(mangled(&symbol));
        }
    }
    types.sort();
    types.dedup();
    types
}

/// `poll<T, S>` among the functions at an address, inlined ones included.
fn described(info: &DebugInfo, entries: &Entries, address: u64) -> Option<String> {
    let context = info.context()?;
    let unit = context.find_dwarf_and_unit(address).skip_all_loads()?;
    let start = unit.header.debug_info_offset()?.0;
    let mut frames = context.find_frames(address).skip_all_loads().ok()?;
    let mut outermost = None;
    while let Ok(Some(frame)) = frames.next() {
        let Some(raw) = frame.function.as_ref().and_then(|f| f.raw_name().ok()) else {
            continue;
        };
        let (name, _) = names::demangle(&raw);
        if !is_generic_over_task(&names::spelled(&name)) {
            continue;
        }
        let at = start + frame.dw_die_offset?.0;
        let text = entries
            .name(info, at)
            .and_then(|name| std::str::from_utf8(name).ok());
        let arguments = text.map(|text| split_arguments(text).1).unwrap_or_default();
        outermost = arguments
            .first()
            .map(|first| (*first).to_owned())
            .or(outermost);
    }
    outermost
}

/// Functions whose first type argument is the future.
fn is_generic_over_task(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("tokio::runtime::task::") else {
        return false;
    };
    let method = rest.rsplit("::").next().unwrap_or_default();
    rest.starts_with("raw::")
        || method == "new_task"
        || method == "unowned"
        || (rest.starts_with("core::Cell") && method == "new")
}

/// The first type argument in a v0 name.
fn mangled(symbol: &Symbol<'_>) -> Option<String> {
    if !symbol.name.starts_with("_R") {
        return None;
    }
    let (name, _) = names::demangle(symbol.name);
    if !is_generic_over_task(&names::spelled(&name)) {
        return None;
    }
    let open = name.find("::<")? + 2;
    split_arguments(&name[open..])
        .1
        .first()
        .map(|first| (*first).to_owned())
}

/// Types that the code leads to.
pub(super) fn reached(module: &Module, vtable: &Vtable) -> Vec<Evidence> {
    let mut walk = Walk {
        module,
        seen: Vec::new(),
        found: Vec::new(),
    };
    for (role, address) in &vtable.functions {
        if *role != Role::Schedule {
            walk.follow(*address, *role == Role::Poll, 0);
        }
    }
    walk.found
}

struct Walk<'a> {
    module: &'a Module,
    seen: Vec<(u64, bool)>,
    found: Vec<Evidence>,
}

impl Walk<'_> {
    fn follow(&mut self, function: u64, polling: bool, depth: usize) {
        if depth > DEEPEST || self.seen.len() > MOST_FUNCTIONS {
            return;
        }
        if self.seen.contains(&(function, polling)) {
            return;
        }
        self.seen.push((function, polling));
        let Some(symbol) = self.module.symbols.at(function).next() else {
            return;
        };
        for target in code::leads_to(&self.module.image, symbol.svma, symbol.size) {
            self.judge(target, polling, depth + 1);
        }
    }

    /// What a called function says, and whether to look into it.
    fn judge(&mut self, target: u64, polling: bool, depth: usize) {
        let mut go_on = false;
        let mut by_kind: Vec<(Kind, String)> = Vec::new();
        for symbol in self.module.symbols.at(target) {
            let (name, language) = names::demangle(symbol.name);
            if language != Language::Rust {
                go_on |= symbol.name.contains("rust_try");
                continue;
            }
            let (says, inside) = meaning(&name, polling);
            by_kind.extend(says);
            go_on |= inside;
        }
        by_kind.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        if let Some(kind) = by_kind.first().map(|(kind, _)| *kind) {
            let of_kind = by_kind.into_iter().filter(|(of, _)| *of == kind);
            let mut types: Vec<String> = of_kind.map(|(_, text)| text).collect();
            types.dedup();
            self.found.push(Evidence {
                kind,
                address: target,
                types,
            });
        }
        if go_on {
            self.follow(target, polling, depth);
        }
    }
}

/// What a function's (demangled) name says of the task, and whether its callees say more.
fn meaning(name: &str, polling: bool) -> (Option<(Kind, String)>, bool) {
    let spelled = names::spelled(name);
    // v0 has the type behind `::<`, legacy directly behind the name.
    let dropped = [
        "core::ptr::drop_in_place::<",
        "core::ptr::drop_in_place<",
        "core::ptr::drop_glue::<",
    ]
    .iter()
    .find_map(|prefix| name.strip_prefix(*prefix)?.strip_suffix('>'));
    if let Some(dropped) = dropped {
        return of_dropped(dropped);
    }
    let of_tokio = ["tokio::runtime::task::", "tokio::loom::"];
    let glue = [
        "std::panicking::",
        "std::panic::",
        "core::panic::",
        "core::ops::function::",
    ];
    let inside = |prefixes: &[&str]| prefixes.iter().any(|prefix| spelled.starts_with(prefix));
    if inside(&of_tokio) || inside(&glue) || spelled.starts_with("<core::panic::unwind_safe") {
        return (None, true);
    }
    if !polling {
        return (None, false);
    }
    if spelled.ends_with("::{closure}") {
        return (Some((Kind::Body, name.to_owned())), false);
    }
    // A future that is a type: `<server::Poller as core::future::future::Future>::poll`.
    if let Some(inner) = spelled.strip_suffix(" as core::future::future::Future>::poll") {
        let implementor = inner.strip_prefix('<').unwrap_or(inner);
        // Legacy names of generic functions have the parameters' names in place of types.
        let parameter = |argument: &&str| {
            !argument.contains("::") && argument.starts_with(|c: char| c.is_ascii_uppercase())
        };
        let last = names::segments(implementor)
            .last()
            .copied()
            .unwrap_or_default();
        let generic = !implementor.contains("::") || split_arguments(last).1.iter().any(parameter);
        let says = (!generic).then(|| (Kind::Body, implementor.to_owned()));
        return (says, true);
    }
    (None, false)
}

fn of_dropped(dropped: &str) -> (Option<(Kind, String)>, bool) {
    let mut at = dropped;
    for _ in 0..4 {
        let last = names::segments(at).last().copied().unwrap_or_default();
        let (base, arguments) = split_arguments(last);
        let Some(first) = arguments.first().copied() else {
            break;
        };
        match base {
            "Box" | "UnsafeCell" => at = first,
            "Cell" if at.starts_with("tokio::runtime::task::core::") => {
                return (Some((Kind::Cell, first.to_owned())), true);
            }
            "CoreStage" | "Stage" | "Core" if at.starts_with("tokio::runtime::task::core::") => {
                return (Some((Kind::Stage, first.to_owned())), true);
            }
            _ => break,
        }
    }
    // Something in the future, or its output: it names neither.
    (None, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glue_says_what_it_drops() {
        let says = |name: &str| meaning(name, false).0;
        let cell = "core::ptr::drop_in_place<alloc::boxed::Box<tokio::runtime::task::core::Cell<a::f::{{closure}},alloc::sync::Arc<b::Handle>>>>";
        assert_eq!(
            says(cell),
            Some((Kind::Cell, "a::f::{{closure}}".to_owned()))
        );
        let v0 =
            "core::ptr::drop_in_place::<tokio::runtime::task::core::Stage<<a::B>::f::{closure#0}>>";
        assert_eq!(
            says(v0),
            Some((Kind::Stage, "<a::B>::f::{closure#0}".to_owned()))
        );
        let trailer = "core::ptr::drop_in_place<tokio::runtime::task::core::Trailer>";
        assert_eq!(says(trailer), None);
        let part = "core::ptr::drop_in_place<a::f::{{closure}}>";
        assert_eq!(says(part), None);
    }

    #[test]
    fn only_polling_leads_to_a_body() {
        assert_eq!(meaning("a::f::{{closure}}", false), (None, false));
        let body = Some((Kind::Body, "a::f::{{closure}}".to_owned()));
        assert_eq!(meaning("a::f::{{closure}}", true), (body, false));
        let typed = "<a::Poller as core::future::future::Future>::poll";
        assert_eq!(
            meaning(typed, true),
            (Some((Kind::Body, "a::Poller".to_owned())), true)
        );
        assert_eq!(
            meaning("tokio::runtime::task::harness::Harness<T,S>::poll", true),
            (None, true)
        );
    }
}
