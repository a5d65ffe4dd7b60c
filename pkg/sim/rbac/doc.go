// Package rbac gives the sandbox's controller and agents the rights that users give theirs, and
// tells which of those they used.
//
// The manifests are what the charts karpenter-gpu and gpu-agent render: ServiceAccounts, roles,
// bindings and the agent's admission policy, and no more. They are embedded, so that a sandbox
// needs no Helm; a test renders the charts with the real Helm and compares.
//
// What was used is read from kube-apiserver's audit log, which names for each call its user, what
// it asked for and the authorizer's answer. A rule is taken apart into grants, the smallest things
// that RBAC can allow: one verb on one resource, by one account. A call uses every grant that allows
// it, as to RBAC any of them is reason enough.
//
// What a scenario does not do it cannot show: a grant that no scenario needs is listed in
// unused.yaml with the reason why the charts have it all the same.
package rbac
