//! How the command tells the profiled process which machine code to change.
//!
//! A statically linked allocator is reached by direct calls, so nothing can be interposed: the
//! entry points themselves are made to jump to the recorder. The command has disassembled them,
//! the profiled process only copies bytes and fills in distances.
//!
//! The original of a function is its first instructions, relocated, and a jump to the rest. Calls
//! that the allocator's own code makes to its entry points are pointed at the originals
//! ([`Redirect`]): counting by depth instead would cost a thread-local on every call, and would
//! miss the blocks that a callback of the program frees in the middle of an allocation.

/// Rows that a program can have. Above mimalloc's about 100 entry points.
pub const MAX_PATCHES: usize = 256;

/// Bytes of relocated code, the jump back included.
pub const PATCH_CODE: usize = 96;

/// Bytes that the jump overwrites, and the most that it can take with it: whole instructions.
pub const JUMP_BYTES: usize = 5;
pub const MAX_STOLEN: usize = JUMP_BYTES - 1 + 15;

/// An argument that the function does not have.
pub const NO_ARGUMENT: u8 = 0xff;

/// A function of a statically linked allocator that is led through the recorder.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Patch {
    /// Link-time address of the jump: the function, or what follows its `endbr64`.
    pub svma: u64,
    /// [`super::Allocator`].
    pub allocator: u32,
    /// [`PatchRole`].
    pub role: u32,
    pub arguments: PatchArguments,
    pub stolen_len: u8,
    pub code_len: u8,
    pub fixup_count: u8,
    pub _pad: [u8; 5],
    /// What the command found there. Memory that differs is left alone.
    pub stolen: [u8; 24],
    pub code: [u8; PATCH_CODE],
    pub fixups: [PatchFixup; 6],
}

/// A signed 32-bit distance in `code`, from the end of the field.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct PatchFixup {
    /// Link-time address to reach, if `patch` is 0.
    pub svma: u64,
    /// Row of the patch whose original is to be reached, plus one.
    pub patch: u32,
    /// Where the field is in `code`.
    pub at: u32,
}

/// A call or jump inside the allocator that leads to one of its entry points or to the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Redirect {
    /// Link-time address of the bytes that change.
    pub svma: u64,
    /// What the command found there: [`RedirectKind::bytes`] of them count.
    pub found: [u8; 8],
    /// Row of the patch whose original is to be reached, or whose hook if it is of the system.
    pub patch: u32,
    /// [`RedirectKind`].
    pub kind: u32,
}

/// How the branch is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RedirectKind {
    /// The signed 32-bit distance of a direct branch.
    Distance = 1,
    /// `call [rip + slot]`
    CallSlot = 2,
    /// `jmp [rip + slot]`
    JumpSlot = 3,
}

impl RedirectKind {
    pub fn from_word(word: u32) -> Option<RedirectKind> {
        use RedirectKind::*;
        [Distance, CallSlot, JumpSlot]
            .into_iter()
            .find(|kind| *kind as u32 == word)
    }

    /// How many bytes are changed.
    pub fn bytes(self) -> usize {
        match self {
            RedirectKind::Distance => 4,
            RedirectKind::CallSlot | RedirectKind::JumpSlot => 6,
        }
    }
}

/// Which of the (at most six, integer) arguments is what; [`NO_ARGUMENT`] for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct PatchArguments {
    /// The block, or where to find or put its address.
    pub pointer: u8,
    pub size: u8,
    /// Factor of `size`.
    pub count: u8,
    /// `xallocx`: bytes wanted beyond `size`.
    pub extra: u8,
    pub align: u8,
    /// jemalloc's flags, which hold the alignment's logarithm in their lowest six bits.
    pub flags: u8,
    pub _pad: [u8; 2],
}

/// What a patched function does with blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum PatchRole {
    /// Returns a block of `size * count` bytes.
    Allocate = 1,
    /// Returns 0 and puts a block into `*pointer`.
    AllocateInto = 2,
    /// Returns a block that holds a string; no block if `pointer` is there and not null.
    AllocateString = 3,
    /// The same of `wchar_t` units that are 16 bits wide.
    AllocateWide = 4,
    /// Returns 0 and puts a string into `*pointer`.
    AllocateStringInto = 5,
    /// Null leaves the block as it is.
    Reallocate = 6,
    /// Null for a size of 0 has freed the block, any other null leaves it.
    ReallocateOrFree = 7,
    /// Null has freed the block.
    ReallocateAlwaysFree = 8,
    /// Returns 0 and the block is the one in `*pointer`.
    ReallocateInto = 9,
    /// Returns the same block, or null and leaves it.
    Expand = 10,
    /// Returns the size that the same block now has.
    Xallocx = 11,
    Free = 12,
    /// Not an entry point: the allocator's own calls of `mmap`, by redirects alone.
    Map = 13,
    /// The same of `munmap`.
    Unmap = 14,
}

impl PatchRole {
    pub fn from_word(word: u32) -> Option<PatchRole> {
        use PatchRole::*;
        const ALL: [PatchRole; 14] = [
            Allocate,
            AllocateInto,
            AllocateString,
            AllocateWide,
            AllocateStringInto,
            Reallocate,
            ReallocateOrFree,
            ReallocateAlwaysFree,
            ReallocateInto,
            Expand,
            Xallocx,
            Free,
            Map,
            Unmap,
        ];
        ALL.into_iter().find(|role| *role as u32 == word)
    }

    /// Is it a function of the system, of which nothing is patched?
    pub fn is_system(self) -> bool {
        matches!(self, PatchRole::Map | PatchRole::Unmap)
    }
}

const _: () = {
    assert!(size_of::<Patch>() == 8 + 8 + 8 + 4 + 4 + 24 + PATCH_CODE + 6 * 16);
    assert!(size_of::<Redirect>() == 24);
    assert!(MAX_STOLEN <= 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_comes_back_from_its_word() {
        for word in 1..=14 {
            assert_eq!(
                PatchRole::from_word(word).map(|role| role as u32),
                Some(word)
            );
        }
        assert_eq!(PatchRole::from_word(0), None);
        assert_eq!(PatchRole::from_word(15), None);
    }
}
