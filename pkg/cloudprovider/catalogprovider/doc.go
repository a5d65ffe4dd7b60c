// Package catalogprovider is a CloudProvider that knows instance types from the
// GPU catalogue and reaches no cloud.
//
// It answers GetInstanceTypes as the AWS provider does for the same EC2NodeClass:
// the same labels as requirements, the same capacity and the same overhead, by
// the same arithmetic, so that a plan made offline is the plan that the
// controller would make. Everything else of the interface is refused. It links
// no SDK; the package parity compares it with the AWS provider type by type.
//
// What it cannot know offline it assumes, and Options says what: zones, spot
// prices, and that capacity is there. What neither the catalogue nor arithmetic
// tells (EBS bandwidth, clock speed, encryption in transit) is left undefined, so
// that it excludes nothing; UnknownLabels lists it.
package catalogprovider
