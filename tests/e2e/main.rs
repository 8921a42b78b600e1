//! The binary from end to end: what the README, the documentation and the help texts promise is so.
//!
//! Each test has a desk of its own: a folder with a project and a state folder. A desk that is cleared away checks
//! that nothing was left: no process, no mount, no workspace.

mod authority;
mod capture;
mod capture_crash;
mod citations;
mod codes;
mod configuration;
mod damage;
mod deltas;
mod desk;
mod environment;
mod exec;
mod full_disk;
mod interrupted_apply;
mod limits;
mod mesh;
mod ordinary;
mod receipts;
mod repair;
mod resume;
mod shell;
mod shown;
mod traces;
mod tree;
