// Package operator assembles the controller that users run: Karpenter's AWS
// provider, Karpenter's own controllers, and ours, around one decorated
// CloudProvider.
//
// It follows the provider's own main step by step, since that main cannot be
// imported. Two tests hold it to that: one compares the calls that the pinned
// upstream main makes with the list recorded here, the other the controllers
// that upstream constructs. An upgrade of Karpenter that adds a step or a
// controller fails them until somebody has decided what it means for us.
//
// The package contains wiring and options only. Decisions live further down the
// import order: apis, gpu, cloudprovider, provisioning, controllers.
package operator
