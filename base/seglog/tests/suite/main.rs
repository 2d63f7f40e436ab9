//! The log on real files and on a simulated disk, and its command.

mod clock;
mod command;
mod damage;
mod ends;
mod model;
mod plain;
mod vectors;
