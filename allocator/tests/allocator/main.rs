//! The allocator from outside: the real binary, its sockets, and engines that are real or speak as one.

mod api;
mod chaos;
mod cli;
mod crash;
mod dialects;
mod docker;
mod gateway;
mod speed;
mod support;
