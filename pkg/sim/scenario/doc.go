// Package scenario plays a written story on a sandbox and judges it.
//
// A scenario is one YAML file: ordinary Kubernetes manifests, settings of the simulated cloud and
// nodes, and a list of steps. A step either does something (apply, scale, fail, interrupt, kill the
// controller, …) or expects something by a deadline. The engine knows the sandbox only through the
// World interface: it asks for a Snapshot, a plain value, and hands it to pure checks, so that every
// rule of judgment is tested without a cluster.
//
// Files are decoded strictly. A key that no field claims is an error that names the file, the line,
// the key and the keys that would have been understood.
//
// A manifest that needs the time of day writes ${cron +90s} for a cron line that begins so long after
// it is applied, and is read in UTC.
//
// Left out on purpose: loops, other variables and conditions. A story that needs them is a test, not a
// scenario.
package scenario
