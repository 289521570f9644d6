//! The offset of the task id, read from tokio's machine code.
//!
//! `set_current_task_id` is `CONTEXT.current_task_id.replace(id)`: compiled, it is the one place
//! where a word of `CONTEXT` is loaded and then overwritten. It is not generic and is called from
//! many generic functions, so it survives as a function of its own in most builds; where it was
//! inlined, the functions that enter and leave a task hold the same exchange.
//!
//! Instructions are followed, not matched as text: registers may hold the thread pointer plus a
//! constant, and an access through one of them is an access to a known thread-local place. The
//! walk goes forward once; at a join only what both ways agree on is kept. Whatever is not
//! understood forgets the registers that it writes, which loses an answer but never makes one.
//!
//! Several words may be exchanged where much was inlined. Then functions vote, and no word is
//! taken that does not win clearly.

use std::collections::HashMap;

use super::{Context, Field, names};
use crate::profile::target::{Image, Symbols};

/// Functions that are looked into where the exchange was inlined.
const MOST_FUNCTIONS: usize = 400;

const LARGEST_FUNCTION: u64 = 64 * 1024;

/// For each context the field.
pub(super) fn fields(
    image: &Image,
    symbols: &Symbols,
    contexts: &[Context<'_>],
) -> Vec<Option<Field>> {
    let mut setters = Votes::default();
    let mut users = Votes::default();
    let mut users_seen = 0;
    for symbol in symbols.functions() {
        if !symbol.name.contains("tokio") || symbol.size > LARGEST_FUNCTION {
            continue;
        }
        let name = names::spelled(&names::demangle(symbol.name).0);
        let code = || image.read(symbol.svma, symbol.size as usize);
        if name == "tokio::runtime::context::set_current_task_id" {
            setters.add(&exchanged(code(), symbol.svma), contexts);
        } else if enters_or_leaves_tasks(&name) && users_seen < MOST_FUNCTIONS {
            users_seen += 1;
            users.add(&exchanged(code(), symbol.svma), contexts);
        }
    }
    let field = |context| setters.winner(context).or_else(|| users.winner(context));
    contexts.iter().map(field).collect()
}

fn enters_or_leaves_tasks(name: &str) -> bool {
    name.contains("::task::core::TaskIdGuard")
        || (name.starts_with("tokio::runtime::task::core::Core")
            && (name.ends_with("::poll") || name.ends_with("_stage") || name.ends_with("_output")))
}

/// Counts per word in how many functions it is exchanged.
#[derive(Default)]
struct Votes(HashMap<i64, usize>);

impl Votes {
    fn add(&mut self, words: &[i64], contexts: &[Context<'_>]) {
        for word in words {
            if contexts.iter().any(|context| context.holds_word(*word)) {
                *self.0.entry(*word).or_default() += 1;
            }
        }
    }

    /// The word of this context that more than twice as many functions exchange as any other;
    /// or two that follow each other, as an option without a niche has them.
    fn winner(&self, context: &Context<'_>) -> Option<Field> {
        let mut counts: Vec<(usize, i64)> = self
            .0
            .iter()
            .filter(|(word, _)| context.holds_word(**word))
            .map(|(word, count)| (*count, *word))
            .collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let votes = |at: usize| counts.get(at).map_or(0, |(count, _)| *count);
        let &(most, first) = counts.first()?;
        if most > 2 * votes(1) {
            return Some(Field {
                id: first,
                present: None,
            });
        }
        let &(also, second) = counts.get(1)?;
        let follow = (first - second).abs() == 8;
        (follow && most == also && most > 2 * votes(2)).then(|| Field {
            id: first.max(second),
            present: Some(first.min(second)),
        })
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn exchanged(_code: &[u8], _svma: u64) -> Vec<i64> {
    // The accesses of other architectures are not followed: the field is learned there.
    Vec::new()
}

#[cfg(target_arch = "x86_64")]
use x86_64::exchanged;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::collections::HashMap;

    use iced_x86::{
        Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
        OpAccess, OpKind, Register,
    };

    /// What a register holds.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Value {
        /// The thread pointer plus this.
        FromThreadPointer(i64),
        Constant(i64),
    }

    type State = HashMap<Register, Value>;

    /// Words at known offsets from the thread pointer that are loaded and later stored to.
    pub(in super::super) fn exchanged(code: &[u8], svma: u64) -> Vec<i64> {
        let mut decoder = Decoder::with_ip(64, code, svma, DecoderOptions::NONE);
        let mut walk = Walk::default();
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            walk.step(&instruction);
        }
        walk.exchanged
    }

    #[derive(Default)]
    struct Walk {
        state: State,
        /// False after a jump, until somebody is seen to come here.
        reachable: bool,
        started: bool,
        /// What is known where branches lead.
        pending: HashMap<u64, State>,
        loaded: Vec<i64>,
        exchanged: Vec<i64>,
        info: Option<InstructionInfoFactory>,
    }

    impl Walk {
        fn step(&mut self, instruction: &Instruction) {
            if !self.started {
                (self.started, self.reachable) = (true, true);
            }
            if let Some(known) = self.pending.remove(&instruction.ip()) {
                if self.reachable {
                    self.state
                        .retain(|register, value| known.get(register) == Some(value));
                } else {
                    self.state = known;
                }
                self.reachable = true;
            } else if !self.reachable {
                // Reached from behind, or not at all: nothing is known.
                self.state.clear();
            }
            self.accesses(instruction);
            self.effects(instruction);
            self.flow(instruction);
        }

        /// Notes loads and stores of whole words at known places.
        fn accesses(&mut self, instruction: &Instruction) {
            let Some(place) = self.place(instruction) else {
                return;
            };
            if instruction.memory_size().size() != 8 {
                return;
            }
            let is_memory = |operand| instruction.op_kind(operand) == OpKind::Memory;
            match instruction.mnemonic() {
                Mnemonic::Mov if is_memory(0) => self.store(place),
                Mnemonic::Mov => self.loaded.push(place),
                Mnemonic::Xchg => {
                    self.loaded.push(place);
                    self.store(place);
                }
                _ => {}
            }
        }

        fn store(&mut self, place: i64) {
            if self.loaded.contains(&place) && !self.exchanged.contains(&place) {
                self.exchanged.push(place);
            }
        }

        /// The offset from the thread pointer that the instruction's memory operand means.
        fn place(&self, instruction: &Instruction) -> Option<i64> {
            let has_memory = (0..instruction.op_count())
                .any(|operand| instruction.op_kind(operand) == OpKind::Memory);
            if !has_memory || instruction.is_ip_rel_memory_operand() {
                return None;
            }
            let by_segment = instruction.memory_segment() == Register::FS;
            let mut offset = instruction.memory_displacement64() as i64;
            let mut from_pointer = by_segment;
            let parts = [
                (instruction.memory_base(), 1),
                (instruction.memory_index(), instruction.memory_index_scale()),
            ];
            for (register, scale) in parts {
                if register == Register::None {
                    continue;
                }
                match self.state.get(&register)? {
                    Value::Constant(value) => {
                        offset = offset.wrapping_add(value.wrapping_mul(i64::from(scale)));
                    }
                    Value::FromThreadPointer(value) if scale == 1 && !from_pointer => {
                        offset = offset.wrapping_add(*value);
                        from_pointer = true;
                    }
                    Value::FromThreadPointer(_) => return None,
                }
            }
            from_pointer.then_some(offset)
        }

        /// What the instruction leaves in registers.
        fn effects(&mut self, instruction: &Instruction) {
            let result = self.result(instruction);
            let target = instruction.op0_register();
            if matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            ) {
                for register in CALLER_SAVED {
                    self.state.remove(&register);
                }
            }
            let info = self.info.get_or_insert_with(InstructionInfoFactory::new);
            for used in info.info(instruction).used_registers() {
                if !matches!(
                    used.access(),
                    OpAccess::Read | OpAccess::CondRead | OpAccess::None
                ) {
                    self.state.remove(&used.register().full_register());
                }
            }
            if let Some(value) = result {
                self.state.insert(target, value);
            }
        }

        fn result(&self, instruction: &Instruction) -> Option<Value> {
            if instruction.op_count() < 2 || instruction.op0_kind() != OpKind::Register {
                return None;
            }
            let held = || self.state.get(&instruction.op1_register()).copied();
            match instruction.code() {
                Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => {
                    if instruction.op1_kind() == OpKind::Register {
                        return held();
                    }
                    // `fs:0` holds its own address.
                    let is_own = instruction.memory_segment() == Register::FS;
                    (is_own && self.place(instruction) == Some(0))
                        .then_some(Value::FromThreadPointer(0))
                }
                Code::Lea_r64_m => {
                    let base = instruction.memory_base();
                    let simple = instruction.memory_index() == Register::None;
                    let displacement = instruction.memory_displacement64() as i64;
                    match self.state.get(&base) {
                        Some(value) if simple => Some(value.plus(displacement)),
                        _ => None,
                    }
                }
                Code::Mov_rm64_imm32 | Code::Mov_r64_imm64 => {
                    Some(Value::Constant(instruction.immediate(1) as i64))
                }
                Code::Add_rm64_imm8 | Code::Add_rm64_imm32 | Code::Add_RAX_imm32 => {
                    let held = self.state.get(&instruction.op0_register())?;
                    Some(held.plus(instruction.immediate(1) as i64))
                }
                Code::Add_rm64_r64 | Code::Add_r64_rm64 => self.sum(instruction),
                _ => None,
            }
        }

        fn sum(&self, instruction: &Instruction) -> Option<Value> {
            // `mov rax, -0x108; add rax, fs:0`
            let left = *self.state.get(&instruction.op0_register())?;
            let right = if instruction.op1_kind() == OpKind::Memory {
                let own = self.place(instruction) == Some(0);
                own.then_some(Value::FromThreadPointer(0))?
            } else {
                *self.state.get(&instruction.op1_register())?
            };
            match (left, right) {
                (value, Value::Constant(add)) | (Value::Constant(add), value) => {
                    Some(value.plus(add))
                }
                _ => None,
            }
        }

        fn flow(&mut self, instruction: &Instruction) {
            match instruction.flow_control() {
                FlowControl::ConditionalBranch => self.leads_to(instruction.near_branch_target()),
                FlowControl::UnconditionalBranch => {
                    self.leads_to(instruction.near_branch_target());
                    self.reachable = false;
                }
                FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Exception
                | FlowControl::Interrupt => self.reachable = false,
                _ => {}
            }
        }

        fn leads_to(&mut self, target: u64) {
            let known = &self.state;
            self.pending
                .entry(target)
                .and_modify(|state| state.retain(|r, value| known.get(r) == Some(value)))
                .or_insert_with(|| known.clone());
        }
    }

    impl Value {
        fn plus(self, add: i64) -> Value {
            match self {
                Value::FromThreadPointer(value) => {
                    Value::FromThreadPointer(value.wrapping_add(add))
                }
                Value::Constant(value) => Value::Constant(value.wrapping_add(add)),
            }
        }
    }

    const CALLER_SAVED: [Register; 9] = [
        Register::RAX,
        Register::RCX,
        Register::RDX,
        Register::RSI,
        Register::RDI,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
    ];
}
