//! Where the bytes of a finding were made, in words that lead there.

use std::collections::HashMap;

use super::claims::Claims;
use super::facts::Facts;
use crate::profile::{NodeId, Site};

/// A function, and the file it is written in.
type FunctionAndFile = (String, Option<String>);

/// The function that made most of it, with the library and the line that made most there.
pub fn of_most(facts: &Facts, claims: &Claims) -> Option<Site> {
    let mut functions: HashMap<FunctionAndFile, (u64, HashMap<Site, u64>)> = HashMap::new();
    for (context, bytes) in &claims.0 {
        let site = facts.site(facts.node(*context));
        let key = (site.function.clone(), site.file.clone());
        let (sum, sites) = functions.entry(key).or_default();
        *sum += bytes;
        *sites.entry(site).or_default() += bytes;
    }
    let most = functions.into_iter().max_by(|a, b| {
        let (of, key) = (|x: &(u64, HashMap<Site, u64>)| x.0, &a.0);
        of(&a.1).cmp(&of(&b.1)).then_with(|| b.0.cmp(key))
    });
    let (_, (_, sites)) = most?;
    let site = sites
        .into_iter()
        .max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
    site.map(|(site, _)| site)
}

/// The frame under which the whole structure is made, and the library in which most of it is. If
/// that frame only leads to code that calls a library, the frame that calls it.
pub fn of_structure(facts: &Facts, node: Option<NodeId>, claims: &Claims) -> Option<Site> {
    let most = of_most(facts, claims);
    let Some(whole) = node.map(|node| facts.site(node)) else {
        return most;
    };
    match most {
        Some(most) if whole.library.is_none() && most.library.is_some() => Some(most),
        Some(most) => Some(Site {
            library: most.library.or(whole.library),
            ..whole
        }),
        None => Some(whole),
    }
}

/// `, made in server::parse (rules.rs:12) through serde_json`; empty if the place is not known.
pub fn made_in(site: Option<&Site>) -> String {
    at("made in", site)
}

/// `, spawned in server::main (main.rs:12)`.
pub fn spawned_in(site: Option<&Site>) -> String {
    let spawner = site.map(|site| Site {
        library: None,
        ..site.clone()
    });
    at("spawned in", spawner.as_ref())
}

fn at(what: &str, site: Option<&Site>) -> String {
    let Some(site) = site else {
        return String::new();
    };
    let mut text = format!(", {what} {}", plain(&site.function));
    if let (Some(file), Some(line)) = (&site.file, site.line) {
        text.push_str(&format!(" ({}:{line})", short(file)));
    }
    if let Some(library) = &site.library {
        text.push_str(&format!(" through {library}"));
    }
    text
}

/// The file's name, with its folder where many files have that name.
pub fn short(file: &str) -> &str {
    let name_at = file.rfind('/').map_or(0, |at| at + 1);
    if !matches!(&file[name_at..], "mod.rs" | "lib.rs" | "main.rs") {
        return &file[name_at..];
    }
    let folder = file[..name_at.saturating_sub(1)].rfind('/');
    &file[folder.map_or(0, |at| at + 1)..]
}

/// `a::T::clone` of `<a::T as core::clone::Clone>::clone`.
pub fn plain(function: &str) -> String {
    let whole = || function.to_owned();
    let Some(inner) = function.strip_prefix('<') else {
        return whole();
    };
    let Some((of, rest)) = inner.split_once(" as ") else {
        return whole();
    };
    // What follows the `>` that closes the first `<`.
    let mut depth = 1;
    for (at, c) in rest.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return format!("{of}{}", &rest[at + 1..]);
        }
    }
    whole()
}

#[cfg(test)]
mod tests {
    use super::{plain, short};

    #[test]
    fn files_of_common_names_show_their_folder() {
        assert_eq!(short("/a/axum-0.8.9/src/serve/mod.rs"), "serve/mod.rs");
        assert_eq!(short("src/main.rs"), "src/main.rs");
        assert_eq!(short("main.rs"), "main.rs");
        assert_eq!(short("src/rules.rs"), "rules.rs");
    }

    #[test]
    fn an_implementation_is_named_by_its_type() {
        assert_eq!(plain("<a::T as core::clone::Clone>::clone"), "a::T::clone");
        assert_eq!(plain("<a::T<u8> as b::From<c::D>>::from"), "a::T<u8>::from");
        assert_eq!(plain("a::main::{closure}"), "a::main::{closure}");
        assert_eq!(plain("<a::T>::new"), "<a::T>::new");
    }
}
