//! Names of statics and thread-locals in the names of functions.
//!
//! The initial value of a static is code, and that code is named after it:
//! `server::RULES::{{closure}}` for a closure, `server::CACHE::{{constant}}::…::__init` for what
//! `thread_local!` makes. A path whose part is shouted, followed only by parts that no person
//! writes, is a fact about whose initial value runs; anything else says nothing.

/// `server::RULES` of `server::RULES::{{closure}}`; none if the function is not written in a
/// static's initial value.
pub fn initialised(function: &str) -> Option<&str> {
    if function.contains('<') {
        return None;
    }
    let mut end = 0;
    for part in function.split("::") {
        let stop = end + part.len();
        if shouted(part) {
            let rest = function.get(stop + 2..)?;
            return rest.split("::").all(made).then_some(&function[..stop]);
        }
        end = stop + 2;
    }
    None
}

fn shouted(part: &str) -> bool {
    let allowed = |c: char| c == '_' || c.is_ascii_digit() || c.is_uppercase();
    part.chars().all(allowed) && part.chars().any(char::is_uppercase)
}

/// A part that the compiler or a macro of std made.
fn made(part: &str) -> bool {
    part.starts_with('{') || part.starts_with("__")
}

#[cfg(test)]
mod tests {
    use super::initialised;

    #[test]
    fn only_code_written_in_a_static_names_it() {
        assert_eq!(initialised("a::b::RULES::{{closure}}"), Some("a::b::RULES"));
        assert_eq!(initialised("a::RULES_2::{closure#0}"), Some("a::RULES_2"));
        assert_eq!(
            initialised("a::CACHE::{{constant}}::{{closure}}::__init"),
            Some("a::CACHE")
        );
        assert_eq!(initialised("a::rules::{{closure}}"), None);
        assert_eq!(initialised("a::RULES"), None);
        assert_eq!(initialised("a::T::new"), None);
        assert_eq!(initialised("<a::T as b::C>::{{closure}}"), None);
    }
}
