//! Which names a pattern of a budget means.

/// A pattern is a whole name, or the end of one after `::`; `*` stands for anything.
pub fn matches(pattern: &str, name: &str) -> bool {
    if fits(pattern, name) {
        return true;
    }
    let ends = name.match_indices("::").map(|(at, _)| &name[at + 2..]);
    ends.into_iter().any(|end| fits(pattern, end))
}

fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = pattern
        .contains('*')
        .then(|| pattern.rsplit('*').next().unwrap_or(""))
    else {
        return rest.is_empty();
    };
    let middle: Vec<&str> = parts.collect();
    for part in &middle[..middle.len() - 1] {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_names_and_their_ends() {
        let name = "server::net::handle_connection";
        for pattern in [
            name,
            "handle_connection",
            "net::handle_connection",
            "server::*",
            "*",
            "handle_*",
            "*net*con*tion",
        ] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in [
            "",
            "handle",
            "connection",
            "server",
            "net",
            "*x*",
            "handle_*x",
            "**x",
        ] {
            assert!(!matches(pattern, name), "{pattern}");
        }
    }
}
