//! Programs whose own account is the truth: what they count, answer and exit with is what taskheap
//! has to say, and what they have to do as well while they are recorded.
#![cfg(target_os = "linux")]

mod counted;
mod heaptrack;
mod parked;
mod programs;
mod search;
mod server;
