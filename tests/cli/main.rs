//! What people see of taskheap: profiles that can be read back, tables, JSON, pictures, exit
//! codes. Profiles are built by hand in `sample`, so that every figure can be checked in the head.

mod analyses;
mod check;
mod command;
mod exports;
mod file;
mod golden;
mod growth;
mod large;
mod sample;
mod story;
