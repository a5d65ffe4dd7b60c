// Package catalog knows GPUs before a node exists: which models there are,
// which instance types carry them, and what NVIDIA's GPU feature discovery
// (GFD) will write on their nodes.
//
// Default returns the built-in catalogue, read from the CSV files under data/,
// each of which names its sources. With returns a copy corrected by a user's
// Overrides. A catalogue never changes once built, so it may be shared freely.
//
// Figures come in two kinds that differ for the same board: what the EC2 API
// reports (fields that begin with EC2) and what NVML, and so GFD, reports on
// the node (all others). Labels are predicted from the second kind.
package catalog
