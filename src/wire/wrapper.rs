//! How `taskheap::Alloc` in the program reaches the preload library.
//!
//! Under `taskheap run` the wrapper stands down, except where its inner allocator can't be
//! recorded from outside: then it tells the preload library, through these functions. The two were
//! built by different compilers, so only the C ABI passes between them.

/// Changes with every change of [`WrapperHooks`].
pub const WRAPPER_VERSION: u32 = 1;

/// Name of the function that gives the hooks, or null if they are not wanted.
pub const WRAPPER_SYMBOL: &std::ffi::CStr = c"taskheap_wrapper_hooks";

/// Type of that function.
pub type WrapperHooksFn = extern "C" fn() -> *const WrapperHooks;

#[repr(C)]
pub struct WrapperHooks {
    pub version: u32,
    pub _pad: u32,
    /// Block, size, alignment; program counter, stack and frame pointer of the caller.
    pub allocated: extern "C" fn(*mut u8, usize, usize, u64, u64, u64),
    pub freed: extern "C" fn(*mut u8),
}
