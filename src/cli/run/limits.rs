//! Resource limits: the program keeps the user's, the command must get along.
//!
//! A small `RLIMIT_FSIZE` or `RLIMIT_AS` is meant for the program, yet the command inherits it.
//! So the command raises its own soft limits as far as it may, and gives the program the old ones.

use std::sync::OnceLock;

use libc::{__rlimit_resource_t, rlimit};

const RAISED: [__rlimit_resource_t; 4] = [
    libc::RLIMIT_FSIZE,
    libc::RLIMIT_AS,
    libc::RLIMIT_DATA,
    libc::RLIMIT_NOFILE,
];

/// The limits as they were.
#[derive(Clone)]
pub struct Raised {
    before: Vec<(__rlimit_resource_t, rlimit)>,
}

impl Raised {
    /// Raises them. Once raised they tell no more what they were, so that is kept: a command may
    /// start several programs.
    pub fn new() -> Raised {
        static RAISED: OnceLock<Raised> = OnceLock::new();
        RAISED.get_or_init(Raised::raise).clone()
    }

    fn raise() -> Raised {
        let mut before = Vec::new();
        for resource in RAISED {
            let mut limit = rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: `limit` is a place for the answer.
            if unsafe { libc::getrlimit(resource, &mut limit) } == 0
                && limit.rlim_cur != limit.rlim_max
            {
                before.push((resource, limit));
                let highest = rlimit {
                    rlim_cur: limit.rlim_max,
                    rlim_max: limit.rlim_max,
                };
                // SAFETY: reads `highest`.
                unsafe { libc::setrlimit(resource, &highest) };
            }
        }
        // Where the hard limit is low too: an error that can be told, not a death by SIGXFSZ.
        // SAFETY: changes what one signal does in this process.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        Raised { before }
    }

    /// For the child, between fork and exec: only calls that are allowed there.
    pub fn put_back(&self) {
        for (resource, limit) in &self.before {
            // SAFETY: reads `limit`; async-signal-safe.
            unsafe { libc::setrlimit(*resource, limit) };
        }
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    }
}
