//! Where tokio keeps the id of the task that runs on a thread.
//!
//! It is the field `current_task_id` of a thread-local struct, `CONTEXT`. The symbol table says
//! where the struct is; its layout is the compiler's choice, so a table of offsets per tokio
//! version would be wrong at the next release. Three sources, in this order:
//!
//! - `tokio-dwarf`: the debug info describes the struct. Most release builds have no types in it.
//! - `tokio-code`: tokio's own function that exchanges the id has the offset in its instructions.
//! - `tokio-learned`: neither; the recorder is told where the struct is and how long, and finds
//!   the word by how it behaves at run time.
//!
//! A program may hold several versions of tokio: each has its own entry.

mod code;
mod dwarf;

use super::{DebugInfo, Image, Symbols, TlsBlock, names};

const CONTEXT: &str = "tokio::runtime::context::CONTEXT";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TaskIdMethod {
    Dwarf,
    Code,
    Learned,
}

impl TaskIdMethod {
    /// As it stands in `Recording::task_ids`.
    pub fn name(self) -> &'static str {
        match self {
            TaskIdMethod::Dwarf => "tokio-dwarf",
            TaskIdMethod::Code => "tokio-code",
            TaskIdMethod::Learned => "tokio-learned",
        }
    }
}

/// One tokio's context. Offsets are from the thread pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskIdPlace {
    pub method: TaskIdMethod,
    /// Start and size of the whole struct, for [`crate::wire::ContextSlot`].
    pub context: i64,
    pub context_words: u32,
    /// The word with the id, for [`crate::wire::TaskIdSlot`]; none if it has to be learned.
    pub task_id: Option<i64>,
    /// The word that is 0 while no task runs, where the id alone does not tell.
    pub present: Option<i64>,
}

/// Words of the field: an `Option<Id>`. Ids could be 0 in older versions, so that the option has
/// a word of its own before the id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    id: i64,
    present: Option<i64>,
}

/// A `CONTEXT` of the executable.
#[derive(Clone, Copy, Debug)]
struct Context<'a> {
    symbol: &'a str,
    /// From the thread pointer.
    offset: i64,
    size: u64,
}

impl Context<'_> {
    /// Is an aligned word at this offset from the thread pointer within the struct?
    fn holds_word(&self, offset: i64) -> bool {
        let at = offset.wrapping_sub(self.offset);
        at >= 0 && at % 8 == 0 && (at as u64).saturating_add(8) <= self.size
    }
}

pub(super) fn find(
    image: &Image,
    symbols: &Symbols,
    block: Option<TlsBlock>,
    debug_info: Option<&DebugInfo>,
) -> Vec<TaskIdPlace> {
    let Some(block) = block else {
        return Vec::new();
    };
    let mut contexts: Vec<Context<'_>> = symbols
        .thread_locals()
        .filter(|symbol| symbol.size >= 8 && symbol.svma < block.size)
        .filter(|symbol| names::thread_local(symbol.name).as_deref() == Some(CONTEXT))
        .map(|symbol| Context {
            symbol: symbol.name,
            offset: block.offset_in_executable + symbol.svma as i64,
            size: symbol.size,
        })
        .collect();
    contexts.sort_by_key(|context| context.offset);
    contexts.dedup_by_key(|context| context.offset);
    if contexts.is_empty() {
        return Vec::new();
    }
    let described = debug_info.map(|info| dwarf::fields(info, &contexts));
    let coded = code::fields(image, symbols, &contexts);
    contexts
        .iter()
        .enumerate()
        .map(|(at, context)| place(context, described.as_ref().and_then(|d| d[at]), coded[at]))
        .collect()
}

fn place(context: &Context<'_>, described: Option<Field>, coded: Option<Field>) -> TaskIdPlace {
    let by_dwarf = described.map(|field| (TaskIdMethod::Dwarf, field));
    let by_code = coded.map(|field| (TaskIdMethod::Code, field));
    let known = by_dwarf.or(by_code);
    TaskIdPlace {
        method: known.map_or(TaskIdMethod::Learned, |(method, _)| method),
        context: context.offset,
        context_words: (context.size / 8) as u32,
        task_id: known.map(|(_, field)| field.id),
        present: known.and_then(|(_, field)| field.present),
    }
}
