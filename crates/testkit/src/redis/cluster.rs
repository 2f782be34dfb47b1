//! A cluster.

use super::{Redis, ask, wait_until};
use crate::free_port;

/// How many slots a cluster has.
const SLOTS: usize = 16_384;

/// Some primaries that share the slots between them, in order, each as many as the others. Without one of them the others go on.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts one, and returns when all nodes agree that it is up.
    pub fn start(primaries: usize) -> Self {
        let nodes: Vec<Redis> = (0..primaries).map(|_| node()).collect();
        for (number, node) in nodes.iter().enumerate() {
            let (first, end) = (SLOTS * number / primaries, SLOTS * (number + 1) / primaries);
            ask(node.port(), &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(end - 1).to_string()]);
            ask(node.port(), &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            // Servers find the port of each other's bus by themselves only where it is ten thousand above.
            let [port, bus] = [nodes[0].port().to_string(), bus(&nodes[0])];
            ask(node.port(), &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        // A node may know the others before it knows whose slots are whose.
        let facts = [
            "cluster_state:ok",
            &format!("cluster_known_nodes:{primaries}"),
            &format!("cluster_slots_ok:{SLOTS}"),
        ];
        for node in &nodes {
            wait_until(node.port(), &["CLUSTER", "INFO"], |info| {
                facts.iter().all(|fact| info.lines().any(|line| line.trim() == *fact))
            });
        }
        Self { nodes }
    }

    /// Its nodes.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Takes a node out of the vector: dropping it kills it.
    pub fn take_node(&mut self, number: usize) -> Redis {
        self.nodes.remove(number)
    }

    /// Its addresses, as `redis+cluster://…`.
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }
}

fn node() -> Redis {
    let bus = free_port().to_string();
    let settings = [
        ["--cluster-enabled", "yes"],
        ["--cluster-node-timeout", "1000"],
        ["--cluster-require-full-coverage", "no"],
        ["--cluster-port", &bus],
    ];
    Redis::start_with(settings.as_flattened())
}

/// The port of a node's bus, as it was told.
fn bus(node: &Redis) -> String {
    let answer = ask(node.port(), &["CONFIG", "GET", "cluster-port"]);
    answer.lines().nth(1).unwrap_or_default().trim().to_owned()
}
