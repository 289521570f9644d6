//! The general registers of a stopped thread: the one place that knows their order.

/// A system call that was cut short by the stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutCall {
    pub number: i64,
    pub args: [u64; 6],
}

#[cfg(target_arch = "x86_64")]
mod order {
    pub type Raw = libc::user_regs_struct;

    pub fn empty() -> Raw {
        // SAFETY: all fields are integers, for which zero is a value.
        unsafe { std::mem::zeroed() }
    }

    impl super::Registers {
        pub fn stack_pointer(&self) -> u64 {
            self.raw.rsp
        }

        pub fn instruction_pointer(&self) -> u64 {
            self.raw.rip
        }

        pub fn thread_pointer(&self) -> u64 {
            self.raw.fs_base
        }

        pub fn frame_pointer(&self) -> u64 {
            self.raw.rbp
        }

        /// The return address, where a register may hold it.
        pub fn link(&self) -> u64 {
            0
        }

        /// Registers that may hold a pointer of the program.
        pub fn words(&self) -> Vec<u64> {
            let r = &self.raw;
            vec![
                r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.r8, r.r9, r.r10, r.r11, r.r12,
                r.r13, r.r14, r.r15,
            ]
        }

        pub(super) fn call(&self) -> (i64, i64, [u64; 6]) {
            let r = &self.raw;
            let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
            (r.orig_rax as i64, r.rax as i64, args)
        }

        pub(super) fn set_result(&mut self, result: i64) {
            self.raw.rax = result as u64;
        }

        /// Sets an argument of the call that is about to be issued again.
        pub fn set_argument(&mut self, index: usize, value: u64) {
            let r = &mut self.raw;
            let all = [
                &mut r.rdi, &mut r.rsi, &mut r.rdx, &mut r.r10, &mut r.r8, &mut r.r9,
            ];
            if let Some(argument) = all.into_iter().nth(index) {
                *argument = value;
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod order {
    pub type Raw = libc::user_regs_struct;

    pub fn empty() -> Raw {
        // SAFETY: all fields are integers, for which zero is a value.
        unsafe { std::mem::zeroed() }
    }

    impl super::Registers {
        pub fn stack_pointer(&self) -> u64 {
            self.raw.sp
        }

        pub fn instruction_pointer(&self) -> u64 {
            self.raw.pc
        }

        pub fn frame_pointer(&self) -> u64 {
            self.raw.regs[29]
        }

        /// The return address, where a register may hold it.
        pub fn link(&self) -> u64 {
            self.raw.regs[30]
        }

        /// Not among these registers: the recorder publishes it.
        pub fn thread_pointer(&self) -> u64 {
            0
        }

        /// Registers that may hold a pointer of the program.
        pub fn words(&self) -> Vec<u64> {
            self.raw.regs.to_vec()
        }

        // The number of the call stands in x8. x0 held the first argument and holds the result:
        // the argument is lost to us, but the kernel kept it for the restart.
        pub(super) fn call(&self) -> (i64, i64, [u64; 6]) {
            let r = &self.raw.regs;
            (r[8] as i64, r[0] as i64, [0, r[1], r[2], r[3], r[4], r[5]])
        }

        pub(super) fn set_result(&mut self, result: i64) {
            self.raw.regs[0] = result as u64;
        }

        /// Sets an argument of the call that is about to be issued again.
        pub fn set_argument(&mut self, index: usize, value: u64) {
            if (1..6).contains(&index) {
                self.raw.regs[index] = value;
            }
        }
    }
}

/// General registers.
#[derive(Clone)]
pub struct Registers {
    raw: order::Raw,
}

impl Default for Registers {
    fn default() -> Registers {
        Registers {
            raw: order::empty(),
        }
    }
}

// The kernel's own codes for "issue the call again", which never reach a program.
const RESTART_UNLESS_HANDLED: i64 = -514;

impl Registers {
    pub(super) const BYTES: usize = size_of::<order::Raw>();

    pub(super) fn as_mut_ptr(&mut self) -> *mut order::Raw {
        &raw mut self.raw
    }

    /// The system call that is about to return `EINTR`, if the thread stopped on its way out of
    /// one.
    pub fn cut_call(&self) -> Option<CutCall> {
        let (number, result, args) = self.call();
        let cut = number >= 0 && result == -i64::from(libc::EINTR);
        cut.then_some(CutCall { number, args })
    }

    /// Makes the kernel issue the cut call again when the thread goes on, unless a signal is
    /// handled first: then the call returns `EINTR`, as it would have without us.
    pub fn reissue(&mut self) {
        self.set_result(RESTART_UNLESS_HANDLED);
    }
}
