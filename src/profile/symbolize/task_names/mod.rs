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
use future_type::{Root, What};
use vtables::{Role, Roles, Vtable};

/// A task type's name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskName {
    /// `server::handle_connection`, `server::main::{async block}`; empty if unknown. Where only
    /// code is left that several task types share, their names: `a::one or a::other`, with
    /// `or another` if not all of them have left a name.
    pub name: String,
    /// The whole type; the same for all schedulers.
    pub full_name: String,
    /// Where the async fn, block or closure is written; empty if unknown.
    pub file: String,
    pub line: u32,
    /// tokio's own loops and helpers, run as blocking tasks.
    pub runtime_own: bool,
    /// Given to the blocking pool.
    pub blocking: bool,
    /// A boxed trait object, [`DYN_FUTURE`]: only stacks can name it.
    pub is_dyn: bool,
    /// Its code is shared with other task types, one of which may be the one meant.
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

/// The type; or several, one of which it is.
struct Types {
    types: Vec<String>,
    certainty: Certainty,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Certainty {
    /// There is one type.
    Certain,
    OneOfThese,
    /// More task types share the code than have left a name.
    OrAnother,
}

type Verdict = Option<Types>;

impl Types {
    fn certainly(text: &str) -> Verdict {
        Some(Types {
            types: vec![text.to_owned()],
            certainty: Certainty::Certain,
        })
    }
}

/// Name of tasks whose root future is a trait object.
pub const DYN_FUTURE: &str = "dyn Future";

/// More are not listed in a name.
const MOST_ALTERNATIVES: usize = 4;

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
                .and_then(|text| Types::certainly(&text))
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
            let of_kind = own.iter().filter(|piece| piece.kind == kind);
            if let Some([only]) = common(of_kind.copied()).as_deref() {
                return Types::certainly(only);
            }
        }
        // The body that is polled may be one that the future awaits. It is the task's own if
        // tasks of that type are dropped here too.
        let dropped = pieces.iter().filter(|piece| piece.kind > Kind::Body);
        let dropped: Vec<&String> = dropped.flat_map(|piece| &piece.types).collect();
        let bodies = own.iter().filter(|piece| piece.kind == Kind::Body);
        let mut bodies = bodies.flat_map(|piece| &piece.types);
        if dropped.is_empty() {
            return Some(Types {
                types: vec![bodies.next()?.clone()],
                certainty: Certainty::OrAnother,
            });
        }
        Types::certainly(bodies.find(|body| dropped.contains(body))?)
    }

    /// By evidence that rivals have too, minus what is known to be theirs: all types that are
    /// left. Functions that were merged keep all their names only if they were visible outside
    /// of their object file, so even a single type that is left is not certain.
    fn by_shared(&self, at: usize, verdicts: &[Verdict]) -> Verdict {
        let rivals = (0..self.all.len()).filter(|other| self.are_rivals(at, *other));
        let theirs: Vec<&String> = rivals
            .filter_map(|other| verdicts[other].as_ref())
            .filter(|verdict| verdict.certainty == Certainty::Certain)
            .flat_map(|verdict| &verdict.types)
            .collect();
        let kinds = self.evidence[at].iter().map(|piece| piece.kind);
        let most_telling = kinds.filter(|kind| *kind > Kind::Body).max()?;
        let pieces = self.evidence[at].iter();
        let pieces: Vec<&Evidence> = pieces.filter(|piece| piece.kind == most_telling).collect();
        let mut types: Vec<String> = pieces.iter().flat_map(|p| p.types.clone()).collect();
        types.sort();
        types.dedup();
        let sharers = pieces
            .iter()
            .map(|piece| self.sharers(at, piece))
            .max()
            .unwrap_or(0);
        let certainty = if types.len() < sharers {
            Certainty::OrAnother
        } else {
            Certainty::OneOfThese
        };
        types.retain(|text| !theirs.contains(&text));
        (!types.is_empty()).then_some(Types { types, certainty })
    }

    /// How many task types of the same scheduler have this piece of evidence.
    fn sharers(&self, at: usize, piece: &Evidence) -> usize {
        let users = self.users.get(&piece.address);
        let rivals = users
            .into_iter()
            .flatten()
            .filter(|user| self.are_rivals(at, **user));
        rivals.count() + 1
    }

    fn task_name(&self, verdict: Verdict, definitions: &Definitions) -> TaskName {
        let Some(Types { types, certainty }) = verdict else {
            return TaskName::default();
        };
        let mut names = types.iter().map(|text| self.of_type(text, definitions));
        let Some(first) = names.next() else {
            return TaskName::default();
        };
        let mut all = first.clone();
        if certainty == Certainty::Certain {
            return all;
        }
        // One of several: all are told, and nothing that holds for one only.
        let rest: Vec<TaskName> = names.collect();
        let mut listed: Vec<String> = vec![first.name.clone()];
        listed.extend(rest.iter().map(|name| name.name.clone()));
        listed.dedup();
        let more = listed.len() > MOST_ALTERNATIVES;
        listed.truncate(MOST_ALTERNATIVES);
        if more || certainty == Certainty::OrAnother {
            listed.push("another".to_owned());
        }
        all.name = listed.join(" or ");
        all.full_name = types.join(" or ");
        all.runtime_own = rest.iter().all(|name| name.runtime_own) && first.runtime_own;
        all.blocking = rest.iter().all(|name| name.blocking) && first.blocking;
        all.is_dyn = false;
        all.uncertain = true;
        (all.file, all.line) = (String::new(), 0);
        all
    }

    fn of_type(&self, full_name: &str, definitions: &Definitions) -> TaskName {
        let is_own = |name: &str| self.module.crates().own.contains(name);
        let unwrapped = future_type::unwrap(full_name, &is_own);
        let Root::Path(path) = unwrapped.root else {
            return TaskName {
                name: DYN_FUTURE.to_owned(),
                full_name: full_name.to_owned(),
                is_dyn: true,
                blocking: unwrapped.blocking,
                ..TaskName::default()
            };
        };
        let definition = definitions.find(self.module, path).unwrap_or_default();
        let shown = definition.path.as_deref().unwrap_or(path);
        let mut name = future_type::display(shown, unwrapped.what());
        // `server::supervised<server::handle>`: a function that runs what it was given.
        if let Some(inner) = future_type::given(path, &is_own)
            && let Root::Path(inner) = future_type::unwrap(inner, &is_own).root
        {
            let definition = definitions.find(self.module, inner).unwrap_or_default();
            let inner = definition.path.as_deref().unwrap_or(inner);
            let inner = future_type::display(inner, What::Either);
            name = format!("{name}<{inner}>");
        }
        TaskName {
            blocking: unwrapped.blocking,
            runtime_own: unwrapped.blocking && name.starts_with("tokio::runtime::"),
            name,
            full_name: full_name.to_owned(),
            file: definition.file,
            line: definition.line,
            is_dyn: false,
            uncertain: false,
        }
    }
}

/// The types that all pieces allow.
fn common<'e>(pieces: impl Iterator<Item = &'e Evidence>) -> Option<Vec<String>> {
    pieces
        .map(|piece| piece.types.clone())
        .reduce(|left, right| {
            left.into_iter()
                .filter(|text| right.contains(text))
                .collect()
        })
}
