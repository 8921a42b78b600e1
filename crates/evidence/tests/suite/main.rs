//! The behaviour of journals, receipts and references, one module a part.

mod final_change;
mod fixture;
mod forgery;
mod format;
mod journal;
mod receipts;
mod references;
