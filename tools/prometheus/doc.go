// Package prometheus plays the alerts of charts/karpenter-gpu on Prometheus' own code, and
// parses the queries of its dashboards with it. Run it by `make rules`.
//
// It is a module of its own because Prometheus has several hundred dependencies, none of which
// the product needs. What metrics there are it reads from docs/reference/metrics.md, which a
// test of the product's module holds to the registry.
package prometheus
