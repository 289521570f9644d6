//! All of tokio's task vtables in a file.
//!
//! One vtable alone can't be judged: the compiler merges functions of equal code, so that a
//! vtable may lead to functions that were written for another task type. Only by knowing all of
//! them is it known which evidence is one type's own.

use object::{Object, ObjectSection, SectionKind};

use crate::profile::target::{Image, Symbols, names};

/// What a vtable's word points to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Role {
    Poll,
    Schedule,
    Dealloc,
    TryReadOutput,
    DropJoinHandle,
    DropAbortHandle,
    Shutdown,
}

const WORDS: usize = 7;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Vtable {
    pub svma: u64,
    /// In the order of the file.
    pub functions: Vec<(Role, u64)>,
}

impl Vtable {
    pub fn function(&self, role: Role) -> Option<u64> {
        let found = self.functions.iter().find(|(of, _)| *of == role);
        found.map(|(_, address)| *address)
    }
}

/// Roles of tokio's functions by address. Merged functions may have several.
pub(super) struct Roles(Vec<(u64, Role)>);

impl Roles {
    pub fn of(symbols: &Symbols) -> Roles {
        let mut roles = Vec::new();
        for symbol in symbols.functions() {
            // In both mangling schemes the parts of a path stand as they are.
            if symbol.name.contains("5tokio") && symbol.name.contains("4task3raw") {
                let name = names::spelled(&names::demangle(symbol.name).0);
                roles.extend(role(&name).map(|role| (symbol.svma, role)));
            }
        }
        roles.sort_by_key(|(address, role)| (*address, *role as u8));
        roles.dedup();
        Roles(roles)
    }

    fn at(&self, address: u64) -> impl Iterator<Item = Role> {
        let first = self.0.partition_point(|(at, _)| *at < address);
        self.0[first..]
            .iter()
            .take_while(move |(at, _)| *at == address)
            .map(|(_, role)| *role)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn role(name: &str) -> Option<Role> {
    Some(match name.strip_prefix("tokio::runtime::task::raw::")? {
        "poll" => Role::Poll,
        "schedule" => Role::Schedule,
        "dealloc" => Role::Dealloc,
        "try_read_output" => Role::TryReadOutput,
        "drop_join_handle_slow" => Role::DropJoinHandle,
        "drop_abort_handle" => Role::DropAbortHandle,
        "shutdown" => Role::Shutdown,
        _ => return None,
    })
}

/// The vtable at an address, if the words there are one.
pub(super) fn at(image: &Image, roles: &Roles, svma: u64) -> Option<Vtable> {
    let mut functions: Vec<(Role, u64)> = Vec::with_capacity(WORDS);
    let mut unclear = Vec::new();
    for word in 0..WORDS as u64 {
        let address = image.pointer_at(svma.checked_add(word * 8)?)?;
        let mut found = roles.at(address);
        match (found.next(), found.next()) {
            (Some(role), None) => functions.push((role, address)),
            (Some(_), Some(_)) => unclear.push(address),
            // A few may have lost their names.
            (None, _) => {}
        }
    }
    // A merged function has the role that is left for it.
    for address in unclear {
        let taken = |role: &Role| functions.iter().any(|(of, _)| of == role);
        if let Some(role) = roles.at(address).find(|role| !taken(role)) {
            functions.push((role, address));
        }
    }
    let distinct = |role| functions.iter().filter(|(of, _)| *of == role).count() == 1;
    let is_one = functions.len() + 2 >= WORDS && functions.iter().all(|(role, _)| distinct(*role));
    is_one.then_some(Vtable { svma, functions })
}

/// All vtables, by address.
pub(super) fn all(image: &Image, roles: &Roles) -> Vec<Vtable> {
    let mut found: Vec<Vtable> = Vec::new();
    if roles.is_empty() {
        return found;
    }
    for section in image.elf().sections() {
        let holds_constants = matches!(
            section.kind(),
            SectionKind::ReadOnlyData | SectionKind::ReadOnlyDataWithRel | SectionKind::Data
        );
        // What the file really holds: a damaged header may state any size.
        let size = section.data().map_or(0, <[u8]>::len) as u64;
        if !holds_constants || section.address() == 0 || size < 8 * WORDS as u64 {
            continue;
        }
        let (Some(first), Some(end)) = (
            section.address().checked_next_multiple_of(8),
            section.address().checked_add(size),
        ) else {
            continue;
        };
        let last = end - 8 * WORDS as u64;
        let mut at_word = first;
        while at_word <= last {
            let pointer = image.pointer_at(at_word).unwrap_or(0);
            if roles.at(pointer).next().is_some()
                && let Some(vtable) = at(image, roles, at_word)
            {
                at_word += 8 * WORDS as u64;
                found.push(vtable);
            } else {
                at_word += 8;
            }
        }
    }
    found.sort_by_key(|vtable| vtable.svma);
    found
}
