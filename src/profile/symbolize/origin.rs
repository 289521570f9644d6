//! Whose code a function is.
//!
//! A report leads its reader to the innermost frame of *their own* code, so this decides what a
//! report blames. The source path of the line is a tempting sign and misleads: a line of an own
//! function may be std's (drop glue, macros, merged code). So the crate in the function's name
//! decides, and paths say which crates are whose: cargo keeps registry and git crates in folders
//! of their own, and std's paths are rewritten to `/rustc/HASH/library`. Only for a crate that
//! left no compilation unit, because all of it is generic, does the line's path decide.
//!
//! A function belongs to whoever wrote it: `Vec<Own>::push` is std's, `<Vec<u8> as Own>::f` is
//! the program's.

use std::collections::HashSet;

use crate::profile::Origin;
use crate::profile::target::names::{self, Language};

/// Where a function comes from; the library as a crate's name in code (`serde_json`) or a file
/// name (`libssl.so.3`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Source {
    pub origin: Origin,
    pub library: String,
}

impl Source {
    fn new(origin: Origin, library: &str) -> Source {
        Source {
            origin,
            library: library.to_owned(),
        }
    }

    fn of_crate(name: &str) -> Source {
        match name {
            "std" | "core" | "alloc" | "proc_macro" | "test" | "panic_unwind" | "panic_abort"
            | "std_detect" | "compiler_builtins" | "__rustc" => Source::new(Origin::Std, name),
            "tokio" => Source::new(Origin::Runtime, name),
            _ => Source::new(Origin::Library, name),
        }
    }
}

/// `taskheap::Alloc` stands between the program and its allocator, as std's wrappers do.
fn is_wrapper(name: &str) -> bool {
    name.contains("taskheap::hook::")
}

/// Is this a crate of std's or tokio, whoever's program it is?
pub(super) fn is_known(crate_name: &str) -> bool {
    Source::of_crate(crate_name).origin != Origin::Library
}

/// By source path. None if the path is of no known place: the program's own, or C code that was
/// compiled elsewhere.
pub(super) fn by_path(path: &str) -> Option<Source> {
    if let Some(rest) = after_std(path) {
        let part = rest.split('/').next().unwrap_or_default();
        let part = if ["core", "alloc"].contains(&part) {
            part
        } else {
            "std"
        };
        return Some(Source::new(Origin::Std, part));
    }
    // Crates that std is built from.
    if path.contains("/rust/deps/") {
        return Some(Source::new(Origin::Std, "std"));
    }
    let package = after(path, "/registry/src/")
        .and_then(|rest| rest.split('/').nth(1))
        .map(without_version)
        .or_else(|| {
            let checkout = after(path, "/git/checkouts/")?.split('/').next()?;
            Some(checkout.rsplit_once('-').map_or(checkout, |(name, _)| name))
        })
        .or_else(|| {
            after(path, "/vendor/")?
                .split('/')
                .next()
                .map(without_version)
        })?;
    Some(Source::of_crate(&package.replace('-', "_")))
}

fn after<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    path.find(folder).map(|at| &path[at + folder.len()..])
}

/// What follows `/rustc/HASH/library/`, or the place where rustup puts std's source.
fn after_std(path: &str) -> Option<&str> {
    if let Some(rest) = after(path, "/rustc/")
        && let Some((hash, rest)) = rest.split_once('/')
        && hash.len() >= 7
        && let Some(rest) = rest.strip_prefix("library/")
    {
        return Some(rest);
    }
    after(path, "/rustlib/src/rust/library/")
}

/// `serde_json-1.0.154` -> `serde_json`; `zstd-sys-2.1.3+zstd.1.5.7` -> `zstd-sys`.
fn without_version(folder: &str) -> &str {
    let is_version = |at: &usize| folder[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    let dash = folder.match_indices('-').map(|(at, _)| at).find(is_version);
    dash.map_or(folder, |at| &folder[..at])
}

/// A source path as a person knows it: std's and packages' from their own root, the program's
/// own from the folder in which it was built.
pub(super) fn shown_path<'a>(path: &'a str, build_folder: &str) -> &'a str {
    if let Some(rest) = after_std(path) {
        return rest;
    }
    if let Some(rest) = after(path, "/rust/deps/") {
        return rest;
    }
    if let Some((_, rest)) = after(path, "/registry/src/").and_then(|rest| rest.split_once('/')) {
        return rest;
    }
    if let Some(rest) = after(path, "/git/checkouts/") {
        return rest;
    }
    let below = path
        .strip_prefix(build_folder)
        .and_then(|rest| rest.strip_prefix('/'));
    below.filter(|_| !build_folder.is_empty()).unwrap_or(path)
}

/// Which crates are the program's own, and which are known to be somebody else's.
#[derive(Debug, Default)]
pub(super) struct Crates {
    pub own: HashSet<String>,
    pub others: HashSet<String>,
}

impl Crates {
    /// By name, and where that leaves it open, by the path of the line.
    pub fn by_name_and_path(&self, name: &str, path: &str) -> Source {
        if is_wrapper(name) {
            return Source::new(Origin::Std, "taskheap");
        }
        let Some(named) = self.of(name) else {
            return by_path(path).unwrap_or_else(|| Source::new(Origin::Own, ""));
        };
        if named.origin != Origin::Library || self.others.contains(&named.library) {
            return named;
        }
        match by_path(path) {
            None if !path.is_empty() => Source::new(Origin::Own, ""),
            _ => named,
        }
    }

    /// By the demangled name (common form, types kept), where there is no source path.
    pub fn by_name(&self, name: &str, language: Language, file_name: &str) -> Source {
        match language {
            Language::Rust if is_wrapper(name) => Source::new(Origin::Std, "taskheap"),
            Language::Rust => self
                .of(name)
                .unwrap_or_else(|| Source::new(Origin::Std, "")),
            Language::Cpp => Source::new(Origin::Foreign, file_name),
            Language::Plain if is_glue(name) => Source::new(Origin::Std, "std"),
            Language::Plain => Source::new(Origin::Foreign, file_name),
        }
    }

    fn of(&self, name: &str) -> Option<Source> {
        if let Some(inner) = bracketed(name) {
            return self.of_impl(inner);
        }
        let crate_name = names::segments(name).into_iter().next()?;
        self.source(plain_crate(crate_name)?)
    }

    /// `<Type as Trait>::f` is written where the type or the trait is: in the one that depends
    /// on the other.
    fn of_impl(&self, inner: &str) -> Option<Source> {
        let Some(at) = names::top_level_as(inner) else {
            return self.of_type(inner);
        };
        let (of_type, of_trait) = (self.of_type(&inner[..at]), self.of_type(&inner[at + 4..]));
        let (Some(of_type), Some(of_trait)) = (of_type.clone(), of_trait.clone()) else {
            return of_type.or(of_trait);
        };
        let rank = |source: &Source| match source.origin {
            Origin::Own => 0,
            Origin::Library => 1,
            Origin::Runtime => 2,
            _ => 3,
        };
        Some(if rank(&of_trait) < rank(&of_type) {
            of_trait
        } else {
            of_type
        })
    }

    /// The crate of a type, through references, pointers and slices.
    fn of_type(&self, text: &str) -> Option<Source> {
        let mut rest = text.trim();
        loop {
            let before = rest;
            for prefix in ["&", "*const ", "*mut ", "mut ", "dyn ", "[", "(", "'_ "] {
                rest = rest.strip_prefix(prefix).unwrap_or(rest);
            }
            if rest == before {
                break;
            }
        }
        self.of(rest)
    }

    fn source(&self, crate_name: &str) -> Option<Source> {
        if self.own.contains(crate_name) {
            return Some(Source::new(Origin::Own, ""));
        }
        Some(Source::of_crate(crate_name))
    }
}

/// The inside of the brackets that a name starts with.
fn bracketed(name: &str) -> Option<&str> {
    let close = name
        .starts_with('<')
        .then(|| names::matching(name, 0))
        .flatten()?;
    Some(&name[1..close])
}

/// A crate's name: an identifier in small letters that has a path behind it. `T`, `u8`, `fn` and
/// `_` are none.
fn plain_crate(segment: &str) -> Option<&str> {
    let end = segment.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let word = &segment[..end.unwrap_or(segment.len())];
    let generic = word.len() == 1 && word.starts_with(|c: char| c.is_ascii_uppercase());
    let primitive = [
        "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize",
        "bool", "char", "str", "f32", "f64", "fn", "unsafe", "extern", "for", "_", "",
    ];
    (!generic && !primitive.contains(&word)).then_some(word)
}

/// Functions without a path that are std's or the compiler's.
fn is_glue(name: &str) -> bool {
    let prefixes = [
        "__rust",
        "__rdl_",
        "__rg_",
        "rust_",
        "_Unwind_Rust",
        "__rustc",
    ];
    let whole = ["main", "_start", "_init", "_fini"];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || whole.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(origin: Origin, library: &str) -> Source {
        Source::new(origin, library)
    }

    #[test]
    fn a_path_tells_the_package() {
        let cases = [
            (
                "/rustc/59807616e1/library/alloc/src/vec/mod.rs",
                source(Origin::Std, "alloc"),
            ),
            (
                "/home/a/.rustup/toolchains/x/lib/rustlib/src/rust/library/std/src/io.rs",
                source(Origin::Std, "std"),
            ),
            (
                "/rust/deps/hashbrown-0.16.1/src/raw.rs",
                source(Origin::Std, "std"),
            ),
            (
                "/root/.cargo/registry/src/index-19/serde_json-1.0.1/src/de.rs",
                source(Origin::Library, "serde_json"),
            ),
            (
                "/root/.cargo/registry/src/index-19/tokio-1.54.1/src/task/spawn.rs",
                source(Origin::Runtime, "tokio"),
            ),
            (
                "/root/.cargo/registry/src/i/zstd-sys-2.1.3+zstd.1.5.7/zstd/lib/a.c",
                source(Origin::Library, "zstd_sys"),
            ),
            (
                "/root/.cargo/git/checkouts/hyper-0c8f/5f1b2a/src/lib.rs",
                source(Origin::Library, "hyper"),
            ),
            (
                "/src/app/vendor/regex-automata/src/lib.rs",
                source(Origin::Library, "regex_automata"),
            ),
        ];
        for (path, wanted) in cases {
            assert_eq!(by_path(path), Some(wanted), "{path}");
        }
        assert_eq!(by_path("/home/a/server/src/main.rs"), None);
    }

    #[test]
    fn a_name_tells_who_wrote_the_function() {
        let own = Crates {
            own: HashSet::from(["server".to_owned()]),
            others: HashSet::from(["serde_json".to_owned()]),
        };
        let cases = [
            ("server::handler::{closure}", Origin::Own),
            ("alloc::vec::Vec<server::Rule>::push", Origin::Std),
            ("<server::Rule as core::clone::Clone>::clone", Origin::Own),
            ("<alloc::vec::Vec<T> as server::Size>::size", Origin::Own),
            (
                "<alloc::vec::Vec<server::Rule> as core::clone::Clone>::clone",
                Origin::Std,
            ),
            ("<T as core::convert::Into<U>>::into", Origin::Std),
            ("<&str as server::Size>::size", Origin::Own),
            (
                "<serde_json::Value as core::clone::Clone>::clone",
                Origin::Library,
            ),
            ("<serde_json::Value as server::Size>::size", Origin::Own),
            ("tokio::task::spawn", Origin::Runtime),
            ("core::ptr::drop_in_place<server::Rule>", Origin::Std),
            ("hashbrown::raw::RawTable<T>::reserve", Origin::Library),
            (
                "<[server::Rule] as alloc::slice::Concat>::concat",
                Origin::Own,
            ),
        ];
        for (name, origin) in cases {
            assert_eq!(
                own.by_name(name, Language::Rust, "").origin,
                origin,
                "{name}"
            );
        }
        let by_path = |name, path| own.by_name_and_path(name, path).origin;
        let std_path = "/rustc/59807616e1/library/core/src/ptr/mod.rs";
        assert_eq!(by_path("server::handler", std_path), Origin::Own);
        assert_eq!(by_path("generic::f", std_path), Origin::Library);
        assert_eq!(
            by_path("generic::f", "/home/dev/generic/src/lib.rs"),
            Origin::Own
        );
        assert_eq!(
            by_path("serde_json::f", "/home/dev/server/src/lib.rs"),
            Origin::Library
        );
        let plain = |name| own.by_name(name, Language::Plain, "libc.so.6");
        assert_eq!(plain("getaddrinfo"), source(Origin::Foreign, "libc.so.6"));
        assert_eq!(plain("__rust_alloc").origin, Origin::Std);
    }

    #[test]
    fn paths_are_shown_from_their_root() {
        assert_eq!(
            shown_path("/home/dev/app/src/main.rs", "/home/dev/app"),
            "src/main.rs"
        );
        assert_eq!(
            shown_path("/home/dev/app/src/main.rs", ""),
            "/home/dev/app/src/main.rs"
        );
        assert_eq!(
            shown_path("/rustc/59807616e1/library/std/src/io.rs", ""),
            "std/src/io.rs"
        );
        let registry = "/root/.cargo/registry/src/index-19/serde-1.0.1/src/de.rs";
        assert_eq!(shown_path(registry, ""), "serde-1.0.1/src/de.rs");
    }
}
