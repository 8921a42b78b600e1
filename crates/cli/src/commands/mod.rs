//! One file per command: its words, what it asks of the facade, and how it prints the answer.

pub(crate) mod delta;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod receipts;
pub(crate) mod run;
pub(crate) mod snapshot;
