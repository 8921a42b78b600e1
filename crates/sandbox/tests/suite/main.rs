//! What workspaces promise, tried over both ways to materialize them, as root and as an ordinary user.

mod attack;
mod bench;
mod crash;
mod delta;
mod edit;
mod files;
mod hostile;
mod lifecycle;
mod ordinary;
mod output;
mod policy;
mod process;
mod read;
mod search;
