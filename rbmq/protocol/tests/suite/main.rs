//! What clients and brokers say to each other, in any bytes.

mod attributes;
mod observe;
mod wire;
