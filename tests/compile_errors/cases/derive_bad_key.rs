use serde::{Deserialize, Serialize};
use task_engine::Task;

#[derive(Serialize, Deserialize, Task)]
#[task(unique = "order {ordr}")]
struct SendReceipt {
    order: u64,
}

#[derive(Serialize, Deserialize)]
struct Address;

#[derive(Serialize, Deserialize, Task)]
#[task(unique = "to {address}")]
struct SendLetter {
    address: Address,
}

#[derive(Serialize, Deserialize, Task)]
#[task(unique = "card {card}", secrets("card", "adress.phone"))]
struct Charge {
    card: String,
    address: String,
}

fn main() {}
