//! Which future a task is, from the vtable that its cell points to.
//!
//! The name of a task type is what a report is read by, so a wrong one is worse than none. The
//! compiler gives two task types the same function where their code is equal, under the name of
//! one of them: trusting the first name found would give a task its neighbour's. So all vtables
//! of the file are looked at together. Evidence that only one task type has (for one scheduler)
//! names it. Evidence that several share names one of them only when the others are known by
//! evidence of their own; otherwise the name is marked as uncertain, or there is none.

mod code;
mod definitions;
mod evidence;
mod future_type;
mod references;
mod vtables;

use std::collections::HashMap;
use std::path::Path;

use super::Symbolizer;
use super::module::Module;
use definitions::Definitions;
use evidence::{Evidence, Kind};
use future_type::Root;
use vtables::{Role, Roles, Vtable};

/// A task type's name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskName {
    /// `server::handle_connection`, `server::main::{async block}`; empty if unknown.
    pub name: String,
    /// The whole type; the same for all schedulers.
    pub full_name: String,
    /// Where the async fn, block or closure is written; empty if unknown.
    pub file: String,
    pub line: u32,
    /// tokio's own loops and helpers, run as blocking tasks.
    pub runtime_own: bool,
    /// A boxed trait object: only a stack can name it.
    pub is_dyn: bool,
    /// Its code is shared with another task type that may be the one meant.
    pub uncertain: bool,
}

/// What is known of one file's task types.
#[derive(Default)]
pub(super) struct TaskTypes {
    roles: Option<Roles>,
    names: HashMap<u64, TaskName>,
}

impl Symbolizer {
    /// Names the tasks whose cells point to this vtable.
    pub fn name_task(&mut self, exe: &Path, vtable_svma: u64) -> TaskName {
        self.open(exe);
        let Some(opened) = self.modules.get_mut(exe) else {
            return TaskName::default();
        };
        let Some(module) = &opened.module else {
            return TaskName::default();
        };
        let types = &mut opened.task_types;
        if types.roles.is_none() {
            *types = TaskTypes::of(module);
        }
        if let Some(name) = types.names.get(&vtable_svma) {
            return name.clone();
        }
        let roles = types.roles.as_ref();
        let vtable = roles.and_then(|roles| vtables::at(&module.image, roles, vtable_svma));
        let name = vtable
            .map(|vtable| alone(module, &vtable))
            .unwrap_or_default();
        types.names.insert(vtable_svma, name.clone());
        name
    }
}

impl TaskTypes {
    fn of(module: &Module) -> TaskTypes {
        let roles = Roles::of(&module.symbols);
        let all = vtables::all(&module.image, &roles);
        let names = Judge::new(module, &all).names();
        TaskTypes {
            roles: Some(roles),
            names,
        }
    }

    /// By address; those without a name are left out.
    pub fn all(&self) -> Vec<(u64, TaskName)> {
        let known = self
            .names
            .iter()
            .filter(|(_, name)| **name != TaskName::default());
        let mut all: Vec<_> = known.map(|(svma, name)| (*svma, name.clone())).collect();
        all.sort_by_key(|(svma, _)| *svma);
        all
    }
}

/// A vtable that was not found by searching.
fn alone(module: &Module, vtable: &Vtable) -> TaskName {
    let all = std::slice::from_ref(vtable);
    Judge::new(module, all)
        .names()
        .remove(&vtable.svma)
        .unwrap_or_default()
}

struct Judge<'a> {
    module: &'a Module,
    all: &'a [Vtable],
    /// Of each vtable.
    evidence: Vec<Vec<Evidence>>,
    /// Vtables that lead to an address.
    users: HashMap<u64, Vec<usize>>,
}

/// A type, and whether another may be the right one.
type Verdict = Option<(String, bool)>;

impl<'a> Judge<'a> {
    fn new(module: &'a Module, all: &'a [Vtable]) -> Judge<'a> {
        let collect = |vtable: &Vtable| {
            let mut found = evidence::named(module, vtable);
            if found.is_empty() {
                found = evidence::reached(module, vtable);
            }
            found
        };
        let evidence: Vec<Vec<Evidence>> = all.iter().map(collect).collect();
        let mut users: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, pieces) in evidence.iter().enumerate() {
            for piece in pieces {
                let of = users.entry(piece.address).or_default();
                if !of.contains(&at) {
                    of.push(at);
                }
            }
        }
        Judge {
            module,
            all,
            evidence,
            users,
        }
    }

    fn names(&self) -> HashMap<u64, TaskName> {
        let mut verdicts: Vec<Verdict> = (0..self.all.len()).map(|at| self.by_own(at)).collect();
        let open: Vec<usize> = (0..self.all.len())
            .filter(|at| verdicts[*at].is_none())
            .collect();
        // Where only shared code is left: whoever makes such cells.
        let makers = if open.is_empty() {
            HashMap::new()
        } else {
            let svmas: Vec<u64> = open.iter().map(|at| self.all[*at].svma).collect();
            references::types(self.module, &svmas)
        };
        for at in open {
            let made = makers.get(&self.all[at].svma).cloned();
            verdicts[at] = made
                .map(|text| (text, false))
                .or_else(|| self.by_shared(at, &verdicts));
        }
        let definitions = Definitions::of(self.module);
        let named = self.all.iter().zip(verdicts);
        named
            .map(|(vtable, verdict)| (vtable.svma, self.task_name(verdict, &definitions)))
            .collect()
    }

    /// Do these two vtables mean different types, as far as can be seen? Two schedulers may run
    /// the same type, and a vtable may exist twice.
    fn are_rivals(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.all[one], &self.all[other]);
        one.function(Role::Schedule) == other.function(Role::Schedule)
            && one.functions != other.functions
    }

    fn is_own(&self, at: usize, piece: &Evidence) -> bool {
        let users = self.users.get(&piece.address);
        users.is_none_or(|users| users.iter().all(|user| !self.are_rivals(at, *user)))
    }

    /// By evidence that no rival has.
    fn by_own(&self, at: usize) -> Verdict {
        let pieces = &self.evidence[at];
        let own: Vec<&Evidence> = pieces
            .iter()
            .filter(|piece| self.is_own(at, piece))
            .collect();
        for kind in [Kind::Named, Kind::Cell, Kind::Stage] {
            if let Some(text) = agreed(own.iter().filter(|piece| piece.kind == kind)) {
                return Some((text, false));
            }
        }
        // The body that is polled may be one that the future awaits. It is the task's own if it
        // is known to be spawned.
        let candidates: Vec<&String> = pieces
            .iter()
            .filter(|piece| piece.kind > Kind::Body)
            .flat_map(|piece| &piece.types)
            .collect();
        let bodies = own.iter().filter(|piece| piece.kind == Kind::Body);
        let mut bodies = bodies.flat_map(|piece| &piece.types);
        let body = bodies.find(|body| candidates.is_empty() || candidates.contains(body));
        body.map(|body| (body.clone(), candidates.is_empty()))
    }

    /// By evidence that rivals have too, minus what is known to be theirs.
    fn by_shared(&self, at: usize, verdicts: &[Verdict]) -> Verdict {
        let theirs: Vec<&String> = (0..self.all.len())
            .filter(|other| self.are_rivals(at, *other))
            .filter_map(|other| verdicts[other].as_ref())
            .filter(|(_, uncertain)| !uncertain)
            .map(|(text, _)| text)
            .collect();
        let mut left: Vec<String> = self.evidence[at]
            .iter()
            .filter(|piece| piece.kind > Kind::Body)
            .flat_map(|piece| piece.types.iter().cloned())
            .filter(|text| !theirs.contains(&text))
            .collect();
        left.sort();
        left.dedup();
        match &left[..] {
            [] => None,
            [only] => Some((only.clone(), true)),
            [first, ..] => Some((first.clone(), true)),
        }
    }

    fn task_name(&self, verdict: Verdict, definitions: &Definitions) -> TaskName {
        let Some((full_name, uncertain)) = verdict else {
            return TaskName::default();
        };
        let is_own = |name: &str| self.module.crates().own.contains(name);
        let unwrapped = future_type::unwrap(&full_name, &is_own);
        let Root::Path(path) = unwrapped.root else {
            return TaskName {
                full_name,
                is_dyn: true,
                uncertain,
                ..TaskName::default()
            };
        };
        let definition = definitions.find(self.module, path);
        let shown = definition
            .as_ref()
            .and_then(|found| found.path.as_deref())
            .unwrap_or(path);
        let name = future_type::display(shown, unwrapped.blocking);
        TaskName {
            runtime_own: unwrapped.blocking && name.starts_with("tokio::runtime::"),
            file: definition
                .as_ref()
                .map(|found| found.file.clone())
                .unwrap_or_default(),
            line: definition.as_ref().map_or(0, |found| found.line),
            name,
            full_name,
            is_dyn: false,
            uncertain,
        }
    }
}

/// The one type that all pieces allow.
fn agreed<'e>(pieces: impl Iterator<Item = &'e &'e Evidence>) -> Option<String> {
    let mut left: Option<Vec<&String>> = None;
    for piece in pieces {
        let types = piece.types.iter();
        left = Some(match left {
            None => types.collect(),
            Some(left) => left
                .into_iter()
                .filter(|text| piece.types.contains(text))
                .collect(),
        });
    }
    match left.as_deref() {
        Some([only]) => Some((*only).clone()),
        _ => None,
    }
}
