//! Answers for the behaviour of the store as its users and its enemies see it.

mod capture;
mod crash;
mod damage;
mod full;
mod limits;
mod reuse;
mod store;
mod support;
